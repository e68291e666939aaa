"""Removal of commits, of one rank or of every rank of a run."""

from __future__ import annotations

import operator
import os

from shardkeep.errors import PlanError
from shardkeep.files import leftovers
from shardkeep.files.durable import durably, sync_folder
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.locks.lock import FileLock
from shardkeep.hdf5.segments.run_folder import list_ranks, list_segments, writer_path

__all__ = ["check_checkpoint", "remove_after", "rollback"]


def rollback(run_dir: str | os.PathLike[str], *, step: int, dry_run: bool = False) -> dict[int, int | None]:
    """Remove the commits of every rank after `step`, also of ranks that no longer exist.

    For a run that starts again from its checkpoint of `step`, perhaps with another world size,
    before its workers open their files.

    Parameters
    ----------
    run_dir : str or os.PathLike
        The run folder.
    step : int
        The step of the checkpoint; -1 removes everything.
    dry_run : bool
        Whether to remove nothing and return what the result would be; takes no locks.

    Returns
    -------
    dict
        The committed step of every rank that has a folder; None for a rank without a commit.

    Raises
    ------
    LockTimeoutError
        Another process is writing a rank. Nothing was removed, unless that process began
        during this call.
    NotFoundError
        The folder does not exist.
    PlanError
        The step is not a whole number.
    DurabilityError
        A segment could not be removed.

    Notes
    -----
    The newest segments of a rank are removed first. After a crash or an error, a first part of the
    commits of each rank is there, and the same call completes the work.

    Examples
    --------
    >>> import tempfile
    >>> from shardkeep.hdf5.worker.worker_file import WorkerFile
    >>> from shardkeep.world import World
    >>> run = tempfile.mkdtemp()
    >>> with WorkerFile(run, World(rank=0, size=1)) as out:
    ...     for step in (10, 20, 30):
    ...         out.append("loss", [0.1])
    ...         out.commit(step=step)
    >>> rollback(run, step=20)
    {0: 20}
    """
    step = check_checkpoint(step)
    folders = list_ranks(local_path(run_dir))
    if dry_run:
        kept = {
            rank: [one.step for one in list_segments(folder, gaps=True)] for rank, folder in folders.items()
        }
        return {
            rank: max((one for one in steps if one <= step), default=None) for rank, steps in kept.items()
        }
    for folder in folders.values():
        with FileLock(writer_path(folder), timeout_s=0, if_unsafe="warn"):
            pass
    result = {}
    for rank, folder in folders.items():
        with FileLock(writer_path(folder), timeout_s=0, if_unsafe="warn"):
            leftovers.remove_all(folder)
            result[rank] = remove_after(folder, step, durable=True)
    return result


def check_checkpoint(step: object) -> int:
    """Return the step of a checkpoint, or raise a `PlanError`."""
    try:
        return operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        raise PlanError(f"step={step!r} is not a whole number: pass the step of the checkpoint") from None


def remove_after(folder: str, step: int, *, durable: bool) -> int | None:
    """Remove the segments of one rank after `step`, newest first; return the newest step left.

    The caller holds the lock of the rank.
    """
    segments = list_segments(folder, gaps=True)
    with durably("roll back", folder):
        while segments and segments[-1].step > step:
            os.unlink(segments.pop().path)
            if durable:
                # One by one: a power cut must not bring a later segment back without this one.
                sync_folder(folder)
    return segments[-1].step if segments else None

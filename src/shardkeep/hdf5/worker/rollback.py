"""Removal of commits, of one rank or of every rank of a run."""

from __future__ import annotations

import contextlib
import operator
import os

from shardkeep.errors import CorruptDataError, FormatError, PlanError
from shardkeep.files import leftovers
from shardkeep.files.durable import durably, sync_folder
from shardkeep.files.kinds.urls import is_url, path_or_url, url_name, url_parent
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.remote.copies import Copies
from shardkeep.files.remote.store import list_tree
from shardkeep.hdf5.segments.commit_record import MarkRecord, newest_mark
from shardkeep.hdf5.segments.run_folder import (
    SegmentName,
    is_rank_folder,
    list_ranks,
    list_segments,
    make_rank_folder,
    writer_path,
)
from shardkeep.hdf5.sources.source import open_source
from shardkeep.hdf5.worker.cut import complete_cuts, cut_segment
from shardkeep.hdf5.worker.remote_rank import RemoteRank

__all__ = ["check_checkpoint", "remove_after", "rollback"]


def rollback(
    run_dir: str | os.PathLike[str], *, step: int | None, dry_run: bool = False
) -> dict[int, int | None]:
    """Remove the commits of every rank after `step`, also of ranks that no longer exist.

    The first commit after `step` keeps its rows up to its newest mark (`WorkerFile.mark`) that is not after
    `step`, if it has one.

    For a run that starts again from its checkpoint of `step`, perhaps with another world size,
    before its workers open their files.

    Parameters
    ----------
    run_dir : str or os.PathLike
        The run folder, or its URL.
    step : int or None
        The step of the checkpoint. None, which stands for a start without a checkpoint, and -1 remove
        everything; with None the folder may also be missing.
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
        during this call. With a URL only a process of this host has a lock; the next commit of one on another
        host raises `LockError`.
    NotFoundError
        The folder does not exist.
    PlanError
        The step is not a whole number.
    DurabilityError
        A segment could not be removed, or the part up to a mark could not be written.
    CorruptDataError
        The rows of a segment that is cut at a mark are damaged.
    RemoteError, MissingExtraError
        The store failed or refused a request.

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
    target = path_or_url(run_dir)
    if is_url(target):
        return _roll_back_in_store(target, step, dry_run=dry_run)
    if step is None and not os.path.lexists(target):
        return {}
    step = check_checkpoint(step)
    folders = list_ranks(target)
    if dry_run:
        return {rank: _result(list_segments(one, gaps=True), step) for rank, one in folders.items()}
    for folder in folders.values():
        with FileLock(writer_path(folder), timeout_s=0, if_unsafe="warn"):
            pass
    result = {}
    for rank, folder in folders.items():
        with FileLock(writer_path(folder), timeout_s=0, if_unsafe="warn"):
            leftovers.remove_all(folder)
            result[rank] = remove_after(folder, step, durable=True)
    return result


def _roll_back_in_store(url: str, step: int | None, *, dry_run: bool) -> dict[int, int | None]:
    folders = {url_parent(info.url) for info in list_tree(url)}
    if step is None and not folders:
        return {}
    if dry_run or not folders:
        copies = Copies(folders=True)
        try:
            return rollback(copies.of(url), step=step, dry_run=True)
        finally:
            copies.close()
    step = check_checkpoint(step)
    ranks = sorted(int(url_name(one).partition("-")[2]) for one in folders if is_rank_folder(one))
    with contextlib.ExitStack() as stack:
        remotes = {rank: RemoteRank(url, rank) for rank in ranks}
        for remote in remotes.values():
            make_rank_folder(remote.folder, durable=False)
            stack.enter_context(FileLock(writer_path(remote.folder), timeout_s=0, if_unsafe="warn"))
            stack.callback(remote.forget)
        result = {}
        for rank, remote in remotes.items():
            remote.claim()
            remote.pull()
            result[rank] = remove_after(remote.folder, step, durable=False)
            remote.push()
    return result


def check_checkpoint(step: object) -> int:
    """Return the step of a checkpoint, -1 for None, or raise a `PlanError`."""
    try:
        return -1 if step is None else operator.index(step)  # type: ignore[arg-type]
    except TypeError:
        raise PlanError(f"step={step!r} is not a whole number: pass the step of the checkpoint") from None


def remove_after(folder: str, step: int, *, durable: bool) -> int | None:
    """Remove the rows of one rank after `step`, newest commit first; return the newest step left.

    The caller holds the lock of the rank.
    """
    complete_cuts(folder, durable=durable)
    segments = list_segments(folder, gaps=True)
    mark = _mark_after(segments, step)
    with durably("roll back", folder):
        while segments and segments[-1].step > step:
            if mark is not None and (len(segments) == 1 or segments[-2].step <= step):
                cut_segment(segments[-1].path, mark, durable=durable)
                return mark.step
            os.unlink(segments.pop().path)
            if durable:
                # One by one: a power cut must not bring a later segment back without this one.
                sync_folder(folder)
    return segments[-1].step if segments else None


def _result(segments: list[SegmentName], step: int) -> int | None:
    mark = _mark_after(segments, step)
    kept = [one.step for one in segments if one.step <= step]
    return mark.step if mark is not None else max(kept, default=None)


def _mark_after(segments: list[SegmentName], step: int) -> MarkRecord | None:
    """Return the newest mark up to `step` in the first segment after it."""
    later = [one for one in segments if one.step > step]
    if not later or step < 0:
        return None
    try:
        with open_source(later[0].path) as source:
            return None if source.record is None else newest_mark(source.record.marks, step)
    except (CorruptDataError, FormatError):
        return None  # a rollback also removes segments that are damaged

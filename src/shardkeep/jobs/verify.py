"""Verification of whole files by their checksums and hashes."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor

from shardkeep._paths_in_messages import shown
from shardkeep.errors import NotFoundError
from shardkeep.files.child_python import Children
from shardkeep.files.kinds.kind import identify
from shardkeep.files.paths import expand, path_list
from shardkeep.files.remote.cache import present
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.files.threads.work import Tick, Work
from shardkeep.jobs.verification.expectation import Member, expected_kinds
from shardkeep.jobs.verification.hdf5_children import CHILD, check_hdf5
from shardkeep.jobs.verification.inventory import Inventory, Task, take_inventory, task_of
from shardkeep.jobs.verification.records import check_records
from shardkeep.jobs.verification.report import VerifiedFile, VerifyReport
from shardkeep.jobs.verification.runs import check_run
from shardkeep.jobs.verification.shard_sets import check_sets, with_empty_shards
from shardkeep.quantities import counted
from shardkeep.tfrecord.index.scan import thread_count

__all__ = ["verify", "verify_inventory"]

PathLike = str | os.PathLike[str]


@accepts_urls("paths", folders=True, one_by_one=True)
def verify(
    paths: PathLike | Iterable[PathLike],
    *,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Read whole files and check every checksum and hash in them.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord and TensorBoard event files: both checksums of every record; after damage the check continues
        with the next record. HDF5 files: see `shardkeep.hdf5.verify`. Folders: all files in them and in their
        sub-folders that are of these kinds, or should be by their name, siblings or content; no shard
        ``-00003-of-00008`` may be missing and, in the folder of a run, no commit. All other files are in
        ``report.skipped``. Links to folders are not followed.
    threads : int, optional
        Number of files that are read at once; by default the number of processors.
    executor : concurrent.futures.Executor, optional
        Its workers read the files instead of threads; see `shardkeep.engine`.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` in the calling thread.

    Returns
    -------
    VerifyReport
        A report in which a file that is damaged, empty, locked, unreadable or of another kind is a finding,
        not an error.

    Raises
    ------
    NotFoundError
        A path does not exist, a pattern matches no file, or a folder has no file of these kinds. A worker of
        the executor does not have a file.
    EngineError
        The executor did not finish a task.

    Notes
    -----
    Nothing is written. HDF5 files are read in child processes, because a malformed file can crash HDF5; the
    crash is then a finding.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "train.tfrecord")
    >>> with Writer(path) as writer:
    ...     writer.write(b"one")
    >>> verify(path).ok
    True
    """
    given = path_list(paths)
    inventory = take_inventory(expand(given))
    if not inventory.tasks:
        names = ", ".join(map(os.fsdecode, given[:3])) + (", …" if len(given) > 3 else "")
        count = f"; {counted(len(inventory.skipped), 'file')} of other kinds" if inventory.skipped else ""
        raise NotFoundError(f"{names}: no TFRecord or HDF5 file found{count}; pass others")
    return verify_inventory(inventory, given, threads=threads, executor=executor, progress=progress)


def verify_inventory(
    inventory: Inventory,
    given: Iterable[PathLike],
    *,
    threads: int | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> VerifyReport:
    """Check the files of an inventory of the paths `given`; see `verify`."""
    tasks = inventory.tasks
    work = Work(progress, sum(task.size_bytes for task in tasks), executor)
    with Children(CHILD) as children:
        found = work.run(functools.partial(_check, children), tasks, thread_count(threads))
        if executor is not None:
            found = list(_with_other_files(children, inventory, found))
    files = [one for one, _ in found]
    records = {one.path: record for one, record in found if record is not None}
    files = with_empty_shards(files)
    files += check_sets(tasks, {os.fspath(one) for one in given})
    files += [check_run(folder, records) for folder in inventory.runs]
    return VerifyReport(tuple(files), tuple(inventory.skipped))


def _with_other_files(
    children: Children, inventory: Inventory, found: Iterable[tuple[VerifiedFile, str | None]]
) -> Iterator[tuple[VerifiedFile, str | None]]:
    """Check remote HDF5 files again that a worker found damaged without the objects to which they may refer.

    A segment refers to no other file.
    """
    hdf5 = {task.path: task for task in inventory.tasks if task.expected == "hdf5"}
    for one in found:
        path = one[0].path
        is_segment = os.path.dirname(os.path.dirname(path)) in inventory.runs
        if not one[0].findings or path not in hdf5 or shown(path) == path or is_segment:
            yield one
            continue
        with contextlib.ExitStack() as stack:
            for other in hdf5:
                stack.enter_context(present(other, lambda _: None))
            yield _check(children, hdf5[path], lambda _: None)


def _check(children: Children, task: Task, tick: Tick) -> tuple[VerifiedFile, str | None]:
    """Check one file; return the result and, of a segment, the record of its commit."""
    with present(task.path, lambda _: tick(0)) as is_late:
        if is_late:  # its content was not known
            kind = identify(task.path)
            (expected,) = expected_kinds([Member(task.path, kind)])
            task = task_of(task.path, kind, expected, named=task.named)
        if task.finding is not None:
            findings = (task.finding,)
            return VerifiedFile(task.path, task.expected or "other", task.size_bytes, 0, findings), None
        if task.expected == "hdf5":
            return check_hdf5(task.path, task.size_bytes, children, tick)
        assert task.kind is not None
        return check_records(task.path, task.kind, task.size_bytes, tick), None

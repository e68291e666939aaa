"""Repair of damaged files: new files with all that is whole or can be corrected, and a report of the rest."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace

from shardkeep._paths_in_messages import shown
from shardkeep.errors import FormatError, LockHeldError, NotFoundError, PlanError, TruncatedFileError
from shardkeep.files.durable import durably, sync_folder
from shardkeep.files.file_set import FileSet
from shardkeep.files.kinds.kind import identify
from shardkeep.files.kinds.urls import is_url, local_path, path_or_url
from shardkeep.files.publish import Exists
from shardkeep.files.remote.copies import accepts_urls, with_urls
from shardkeep.files.threads.work import Tick, Work
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.jobs.salvage.job import SalvageJob
from shardkeep.jobs.salvage.live_writers import refuse_live_writers
from shardkeep.jobs.salvage.outputs import check_file, check_folder, check_url, refuse_originals
from shardkeep.jobs.salvage.report import RepairedFile, RepairReport
from shardkeep.jobs.salvage.uploads import uploaded
from shardkeep.jobs.verification.inventory import Inventory, Task, take_inventory
from shardkeep.jobs.verification.report import VerifiedFile
from shardkeep.jobs.verify import verify_inventory
from shardkeep.progress import Parts, Progress
from shardkeep.tfrecord.format.file_kind import is_compressed
from shardkeep.tfrecord.index.scan import thread_count

__all__ = ["repair"]

PathLike = str | os.PathLike[str]

# A salvage reads as often as a verification, and writes.
_WEIGHTS = {"verify": 1, "repair": 2}


@accepts_urls("path", folders=True)
def repair(
    path: PathLike,
    output: PathLike | None = None,
    *,
    dry_run: bool = False,
    exists: Exists = "fail",
    executor: Executor | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> RepairReport:
    """Write a new file with all that is whole, or can be corrected, in a damaged one.

    Parameters
    ----------
    path : path
        A TFRecord or TensorBoard event file, an HDF5 file, the folder of a run, or a folder with such files;
        or the URL of one. It is only read.
    output : path, optional
        The new file. For a folder a new or empty folder, which gets the damaged files under the same relative
        paths; undamaged files are not copied. A URL, too; the objects appear when the repair has ended.
        Required unless `dry_run` is true.
    dry_run : bool
        True to report only; nothing is written.
    exists : {"fail", "replace"}
        What to do if the output exists. "replace" replaces files of the same name.
    executor : concurrent.futures.Executor, optional
        Its workers verify and repair the files of a folder; see `shardkeep.engine`. The segments of a run are
        verified by them and written by this process.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` in the calling thread.

    Returns
    -------
    RepairReport
        A report in which all damage is listed, with what became of it. A file of which nothing can be kept
        has no output.

    Raises
    ------
    NotFoundError
        `path` does not exist, its folder has no data file, or the folder of `output` does not exist.
    FormatError
        `path` is a file of another kind; the message names the kind.
    TruncatedFileError
        `path` has no bytes.
    LockHeldError
        A live process writes a damaged file; the message names it. Nothing was written.
    PlanError
        `output` is missing, is the damaged file or lies in its folder.
    ExistsError, DurabilityError, RemoteError
        As in `shardkeep.files.publish`.
    EngineError
        The executor did not finish a task.
    OSError
        The file cannot be read.

    Notes
    -----
    Each new file appears whole or not at all, and is synced. After an error or Ctrl-C no new file remains;
    SIGKILL during the repair of a folder can leave the first new files, each whole. An undamaged file is
    copied unchanged.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Reader, Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "train.tfrecord")
    >>> with Writer(path) as writer:
    ...     for number in range(3):
    ...         writer.write(b"record %d" % number)
    >>> with open(path, "r+b") as file:
    ...     _ = file.seek(40)
    ...     _ = file.write(b"!!!")
    >>> report = repair(path, path + ".repaired")
    >>> report.ok, [part.outcome for part in report.files[0].parts]
    (False, ['kept', 'lost', 'kept'])
    >>> list(Reader(path + ".repaired"))
    [b'record 0', b'record 2']
    """
    name, target = local_path(path), None if output is None else path_or_url(output)
    if exists not in ("fail", "replace"):
        raise PlanError(f'exists={exists!r} is not valid: use "fail" or "replace"')
    if target is None and not dry_run:
        raise PlanError("output is missing: pass the path of the new file or folder, or dry_run=True")
    is_folder = identify(name).name == "folder"
    if target is None or not is_url(target):
        return _repair(name, target, dry_run, exists, executor, progress, is_folder=is_folder)
    check_url(name, target, exists, is_folder=is_folder)
    with uploaded(target.rstrip("/"), exists) as spooled:
        spooled_report = _repair(name, spooled, dry_run, exists, executor, progress, is_folder=is_folder)
        report: RepairReport = with_urls(spooled_report)
    return report


def _repair(
    name: str,
    target: str | None,
    dry_run: bool,
    exists: Exists,
    executor: Executor | None,
    progress: Callable[[int, int], object] | None,
    *,
    is_folder: bool,
) -> RepairReport:
    if target is not None:
        (check_folder if is_folder else check_file)(name, target, exists)
    inventory = take_inventory([name])
    if not is_folder:
        _refuse_other_kinds(name, inventory)
    elif not (inventory.tasks and os.listdir(name)):  # which raises if the folder cannot be read
        raise NotFoundError(f"{name}: no TFRecord or HDF5 file in this folder; pass another", path=name)
    parts = Parts(progress, sum(task.size_bytes for task in inventory.tasks), _WEIGHTS)
    jobs, intact = _find_damage(name, inventory, parts.begin("verify"), executor)
    if target is not None:
        jobs = [_with_output(one, name, target) for one in jobs]
        refuse_originals(_originals(inventory), [one.output for one in jobs if one.output], folder=name)
    refuse_live_writers(one for job in jobs for one in job.locks())
    if dry_run:
        jobs = [replace(one, output=None) for one in jobs]
    results = _run_all(jobs, exists, parts.begin("repair"), executor, is_folder=is_folder)
    files = tuple(one for job, one in zip(jobs, results, strict=True) if not job.is_intact(one))
    written = target if any(one.output for one in results) else None
    return RepairReport(name, written, dry_run, files, intact + len(results) - len(files))


def _refuse_other_kinds(path: str, inventory: Inventory) -> None:
    """Raise for a path that is not, and should not be, a data file."""
    for other in inventory.skipped:
        raise FormatError(f"{path} is {other.described}, not a data file: pass the data file", path=path)
    (task,) = inventory.tasks
    kind = None if task.finding is None else task.finding.kind
    if kind == "empty":
        raise TruncatedFileError(str(task.finding), path=path)
    if kind in ("replaced", "wrong-kind"):
        raise FormatError(str(task.finding), path=path)


def _find_damage(
    path: str, inventory: Inventory, progress: Progress, executor: Executor | None
) -> tuple[list[SalvageJob], int]:
    """Return the damaged files, runs and sets of a folder and the number of other files, or one file."""
    is_folder = os.path.isdir(path)
    # A verification would apply the log of a killed collector to the original; and the salvage of plain
    # records reads them once anyway.
    unverified = [one for one in inventory.tasks if _has_log(one) or (not is_folder and _is_plain(one))]
    jobs = [SalvageJob(one.path, one.expected or "", one.size_bytes) for one in unverified]
    rest = [one for one in inventory.tasks if one not in unverified]
    if not rest:
        return jobs, 0
    found = verify_inventory(replace(inventory, tasks=rest), [path], executor=executor, progress=progress)
    verified = found.files
    damaged = [one for one in verified if one.findings]
    runs = {run for run in inventory.runs if any(one.path == run or _is_segment(one, run) for one in damaged)}
    intact = 0
    for one in verified:
        kinds = {finding.kind for finding in one.findings}
        if "locked" in kinds:
            raise LockHeldError(one.findings[0].message, path=one.path)
        if any(_is_segment(one, run) for run in runs) or kinds == {"mixed-sets"}:
            continue
        if one.path in runs or kinds or not is_folder:
            size_bytes = one.file_bytes
            if one.kind == "run":
                size_bytes = sum(file.file_bytes for file in verified if _is_segment(file, one.path))
            jobs.append(SalvageJob(one.path, one.kind, size_bytes, one.findings))
        elif one.kind != "run":
            intact += 1
    return jobs, intact


def _has_log(task: Task) -> bool:
    return task.expected == "hdf5" and os.path.lexists(log_path(task.path))


def _is_plain(task: Task) -> bool:
    return task.expected == "tfrecord" and task.kind is not None and not is_compressed(task.kind)


def _is_segment(one: VerifiedFile, run: str) -> bool:
    folder, name = os.path.split(os.path.dirname(one.path))
    return folder == run and name.startswith("rank-")


def _with_output(job: SalvageJob, path: str, target: str) -> SalvageJob:
    if job.path == path:
        return replace(job, output=target)
    return replace(job, output=os.path.join(target, os.path.relpath(job.path, path)))


def _originals(inventory: Inventory) -> list[str]:
    return [one.path for one in inventory.tasks] + [one.path for one in inventory.skipped]


def _run_all(
    jobs: Sequence[SalvageJob],
    exists: Exists,
    progress: Progress,
    executor: Executor | None,
    *,
    is_folder: bool,
) -> list[RepairedFile]:
    """Run all jobs; after an error, remove the files and folders that they made."""
    total_bytes = sum(one.size_bytes for one in jobs)
    made: list[str] = []

    def run(job: SalvageJob, tick: Tick) -> RepairedFile:
        is_new = _is_free(job.output)
        if is_new and job.kind == "run":  # many files, of which an error leaves some
            made.append(job.output or "")
        with _unchanged(job.path):
            result = (job.run_in_folder if is_folder else job.run)(exists, tick)
            if is_new and result.output is not None:
                made.append(result.output)
        return result

    with _folders_for([one.output for one in jobs if one.output is not None]):
        try:
            # The many files of a run are written by this process, which also has the copies of all objects.
            is_here = any(one.kind == "run" or shown(one.path) != one.path for one in jobs)
            if executor is None or is_here:
                return Work(progress, total_bytes).run(run, jobs, thread_count(None))
            return _run_by(Work(progress, total_bytes, executor), jobs, exists, is_folder=is_folder)
        except BaseException:
            for one in made:
                _remove(one)
            raise


def _run_by(work: Work, jobs: Sequence[SalvageJob], exists: Exists, *, is_folder: bool) -> list[RepairedFile]:
    """Run jobs by an executor.

    The workers write into a hidden folder: a task may run twice, or end after this process was interrupted.
    """
    outputs = [one.output for one in jobs if one.output is not None]
    with contextlib.ExitStack() as stack:
        staged, files = list(jobs), FileSet(exists=exists)
        if outputs:
            top = os.path.commonpath([os.path.dirname(os.path.abspath(one)) for one in outputs])
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix=".repair-", dir=top))
            for number, job in enumerate(jobs):
                if job.output is not None:
                    staged[number] = replace(job, output=os.path.join(folder, str(number)))
        found = work.run(functools.partial(_salvage, is_folder), staged, 1)
        stack.enter_context(files)
        for job, one in zip(jobs, found, strict=True):
            if one.output is not None and job.output is not None:
                files.adopt(job.output, one.output)
        files.publish()
    return [
        replace(one, output=job.output if one.output is not None else None)
        for job, one in zip(jobs, found, strict=True)
    ]


def _salvage(is_folder: bool, job: SalvageJob, tick: Tick) -> RepairedFile:
    with _unchanged(job.path):
        return (job.run_in_folder if is_folder else job.run)("replace", tick)


@contextlib.contextmanager
def _unchanged(path: str) -> Iterator[None]:
    """Raise if a file or folder changes while the body repairs it."""
    before = _version(path)
    yield
    if _version(path) != before:
        message = f"{path} changed while it was repaired: a process writes it, perhaps of another host"
        raise LockHeldError(f"{message}; end that process, then repair it again", path=path)


def _is_free(output: str | None) -> bool:
    """Return True if there is nothing at the path of an output, or an empty folder."""
    if output is None:
        return False
    return not os.listdir(output) if os.path.isdir(output) else not os.path.lexists(output)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


@contextlib.contextmanager
def _folders_for(outputs: Sequence[str]) -> Iterator[None]:
    """Make the folders of files, and remove those that are still empty at the end."""
    made: list[str] = []
    try:
        for folder in sorted({os.path.dirname(one) for one in outputs}):
            missing = []
            while folder and not os.path.isdir(folder):
                missing.append(folder)
                folder = os.path.dirname(folder)
            for one in reversed(missing):
                with durably("make the folder", one):
                    os.mkdir(one)
                    made.append(one)
                    sync_folder(os.path.dirname(one) or ".")
        yield
    finally:
        for one in reversed(made):
            with contextlib.suppress(OSError):
                os.rmdir(one)


def _version(path: str) -> FileVersion | None:
    try:
        return FileVersion.of(os.stat(path))
    except OSError:
        return None

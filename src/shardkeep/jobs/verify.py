"""Verification of whole files by their checksums and hashes."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from shardkeep._summary import summary
from shardkeep.errors import CorruptDataError, NotFoundError, ShardkeepError
from shardkeep.files.child_python import child_python
from shardkeep.files.kinds.kind import identify
from shardkeep.files.paths import expand
from shardkeep.hdf5.segments.commit_record import parse_record
from shardkeep.hdf5.segments.run_folder import list_ranks, list_segments
from shardkeep.hdf5.segments.series_check import RunCheck
from shardkeep.tfrecord import Reader
from shardkeep.tfrecord.format.resync import next_frame
from shardkeep.tfrecord.index.scan import processors, scan_in_parts
from shardkeep.tfrecord.index.work import Work

__all__ = ["VerifiedFile", "VerifyReport", "verify"]

PathLike = str | os.PathLike[str]

_MOST_FINDINGS = 20
# A child reports progress every few megabytes; without a report for so long, HDF5 is in an endless loop.
_SILENT_S = 300.0


@dataclass(frozen=True)
class VerifiedFile:
    """Result of one file.

    Attributes
    ----------
    path : str
    kind : str
        "tfrecord"; "segment", "merged", "virtual", "collected" or "hdf5" (see `shardkeep.hdf5.verify`); "run"
        for the folder of a run, whose commits must be complete; "other".
    file_bytes : int
        Size of the file.
    items : int
        Number of records or rows that were read; for a run the number of commits.
    findings : tuple of str
        Messages about damaged, missing or changed data; empty for a file without.
    """

    path: str
    kind: str
    file_bytes: int
    items: int
    findings: tuple[str, ...] = ()

    __repr__ = summary


@dataclass(frozen=True)
class VerifyReport:
    """Report of `verify`.

    Attributes
    ----------
    files : tuple of VerifiedFile
        Results in the order of the paths.
    """

    files: tuple[VerifiedFile, ...]

    __repr__ = summary

    @property
    def ok(self) -> bool:
        """True if no file has a finding."""
        return not any(one.findings for one in self.files)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as types that JSON supports."""
        return {"ok": self.ok, **asdict(self)}


def verify(
    paths: PathLike | Iterable[PathLike],
    *,
    threads: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> VerifyReport:
    """Read whole files and check every checksum and hash in them.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord and TensorBoard event files: both checksums of every record; after damage the check continues
        with the next whole record. HDF5 files: see `shardkeep.hdf5.verify`. Folders: all files of these kinds
        in them and their sub-folders; for the folder of a run also that no commit is missing.
    threads : int, optional
        Number of files that are read at once; by default the number of processors.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` in the calling thread.

    Returns
    -------
    VerifyReport
        A report in which a file that is damaged, locked or of another kind is a finding, not an error.

    Raises
    ------
    NotFoundError
        A path does not exist, a pattern matches no file, or a folder has no file of these kinds.

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
    runs: list[str] = []
    tasks: list[tuple[str, str]] = []
    for path in expand(paths):
        tasks += _tasks(path, runs)
    if not tasks:
        raise NotFoundError("no TFRecord or HDF5 file found in these folders; pass others")
    work = Work(progress, sum(_size(path) for path, _ in tasks))
    records: dict[str, str] = {}
    with _Children() as children:

        def one(task: tuple[str, str]) -> VerifiedFile:
            path, kind = task
            if kind == "hdf5":
                return _hdf5(path, children, work.tick, records)
            return _tfrecord(path, work.tick) if kind == "tfrecord" else _other(path)

        files = work.run(one, tasks, threads or processors())
    return VerifyReport(tuple(files) + tuple(_run(folder, records) for folder in runs))


def _tasks(path: str, runs: list[str]) -> Iterator[tuple[str, str]]:
    kind = identify(path)
    if kind.name != "folder":
        yield path, "tfrecord" if kind.name == "empty" else kind.name
        return
    for folder, folders, names in os.walk(path):
        try:
            ranks = list_ranks(folder)
        except CorruptDataError:  # a finding of `_run`
            ranks = {}
            runs.append(folder)
        if ranks:
            runs.append(folder)
            for one in ranks.values():
                yield from _segments(one)
            folders[:] = [name for name in folders if os.path.join(folder, name) not in ranks.values()]
        folders.sort()
        yield from _readable(folder, names)


def _segments(folder: str) -> Iterator[tuple[str, str]]:
    try:
        for segment in list_segments(folder):
            yield segment.path, "hdf5"
    except CorruptDataError:  # a finding of `_run`; the files are read all the same
        yield from _readable(folder, os.listdir(folder))


def _readable(folder: str, names: list[str]) -> Iterator[tuple[str, str]]:
    for name in sorted(names):
        path = os.path.join(folder, name)
        with contextlib.suppress(OSError):
            found = identify(path)
            if found.name in ("tfrecord", "hdf5"):
                yield path, found.name


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _other(path: str) -> VerifiedFile:
    kind = identify(path)
    if kind.may_be_damaged_records:
        return _tfrecord(path, lambda _: None)
    advice = f"; {kind.advice}" if kind.advice else ""
    finding = f"expected a TFRecord or HDF5 file, found {kind.described}{advice}"
    return VerifiedFile(path, "other", _size(path), 0, (finding,))


# -- TFRecord -------------------------------------------------------------------------------------


def _tfrecord(path: str, tick: Callable[[int], None]) -> VerifiedFile:
    size = _size(path)
    try:
        if identify(path).compression is not None:
            records = sum(1 for _ in Reader(path))
            tick(size)
            return VerifiedFile(path, "tfrecord", size, records)
        records, findings = _frames(path, tick)
    except CorruptDataError as error:
        return VerifiedFile(path, "tfrecord", size, error.record or 0, (str(error),))
    except (ShardkeepError, OSError) as error:
        return VerifiedFile(path, "tfrecord", size, 0, (str(error),))
    return VerifiedFile(path, "tfrecord", size, records, findings)


def _frames(path: str, tick: Callable[[int], None]) -> tuple[int, tuple[str, ...]]:
    """Scan a file; after each damage continue with the next whole record."""
    import numpy as np

    findings: list[str] = []
    known: Any = None
    records = 0
    while True:
        try:
            starts, _ = scan_in_parts(path, known, verify=True, tick=tick)
            return len(starts) - 1, tuple(findings)
        except CorruptDataError as error:
            if error.offset_bytes is None:
                raise
            findings.append(str(error))
            records = error.record or 0
            with open(path, "rb", buffering=0) as file:
                next_offset = next_frame(file.fileno(), error.offset_bytes)
        if next_offset is None or len(findings) == _MOST_FINDINGS:
            if next_offset is not None:
                findings.append("there may be more after it")
            return records, tuple(findings)
        # The scan needs the number of the earlier records, and the end of the last one.
        known = np.zeros(records + 1, np.uint64)
        known[-1] = next_offset


# -- HDF5 -----------------------------------------------------------------------------------------


class _Children:
    """Child processes that read HDF5 files, started when needed; each serves one thread at a time."""

    def __init__(self) -> None:
        self._idle: queue.SimpleQueue[subprocess.Popen[str]] = queue.SimpleQueue()

    def ask(self, path: str, tick: Callable[[int], None]) -> dict[str, Any]:
        """Return the answer of a child about one file, or its exit code if it died."""
        child = self._take()
        assert child.stdin is not None and child.stdout is not None
        try:
            child.stdin.write(json.dumps(os.path.abspath(path)) + "\n")
            child.stdin.flush()
            while True:
                alarm = threading.Timer(_SILENT_S, child.kill)
                alarm.daemon = True
                alarm.start()
                line = child.stdout.readline()
                alarm.cancel()
                if not line:
                    code = child.wait()
                    _end(child)
                    return {"died": code}
                answer: dict[str, Any] = json.loads(line)
                if "bytes" not in answer:
                    self._idle.put(child)
                    return answer
                tick(answer["bytes"])
        except BaseException:
            _end(child)
            raise

    def __enter__(self) -> _Children:
        return self

    def __exit__(self, *error: Any) -> None:
        while not self._idle.empty():
            _end(self._idle.get())

    def _take(self) -> subprocess.Popen[str]:
        with contextlib.suppress(queue.Empty):
            return self._idle.get_nowait()
        return subprocess.Popen(
            child_python("shardkeep.jobs.verify_child", "main()"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.communicate()


def _hdf5(
    path: str, children: _Children, tick: Callable[[int], None], records: dict[str, str]
) -> VerifiedFile:
    size = _size(path)
    left = size

    def count(done: int) -> None:
        nonlocal left
        done = min(done, left)
        left -= done
        tick(done)

    answer = children.ask(path, count)
    tick(left)
    if "died" in answer:
        return VerifiedFile(path, "hdf5", size, 0, (_died(answer["died"]),))
    if "error" in answer:
        return VerifiedFile(path, "hdf5", size, 0, (answer["error"][1],))
    verdict = answer["verdict"]
    if verdict["record"] is not None:
        records[path] = verdict["record"]
    return VerifiedFile(path, verdict["kind"], size, verdict["rows"], tuple(verdict["findings"]))


def _died(code: int) -> str:
    if code == -signal.SIGKILL:
        return "HDF5 did not finish reading it, or was killed for its memory use: the file is malformed"
    if code >= 0:
        return f"the process that read it ended with exit code {code}, a bug of Shardkeep; please report it"
    name = signal.Signals(-code).name
    return f"it crashes HDF5 ({name}): the file is malformed; do not open it, restore it from a copy"


def _run(folder: str, records: dict[str, str]) -> VerifiedFile:
    check = RunCheck()
    commits = 0
    findings: list[str] = []
    try:
        ranks = list_ranks(folder)
    except CorruptDataError as error:
        return VerifiedFile(folder, "run", 0, 0, (str(error),))
    for rank_folder in ranks.values():
        try:
            segments = list_segments(rank_folder)
        except CorruptDataError as error:
            findings.append(str(error))
            continue
        for segment in segments:
            text = records.get(segment.path)
            if text is None:
                continue
            commits += 1
            try:
                check.add(segment.path, parse_record(text.encode(), segment.path), listed=False)
            except CorruptDataError as error:
                findings.append(str(error))
    if commits:
        findings += check.findings()
    return VerifiedFile(folder, "run", 0, commits, tuple(findings))

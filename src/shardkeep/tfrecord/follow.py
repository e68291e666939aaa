"""Reading a file while somebody writes it.

The one question at every frame that is not right is: *not yet*, or *never*? What is missing, and what reads
as NULs, is "not yet" until nothing has come for a while. Bytes that are there and wrong are damage when
later bytes are there too and time has not healed them. What a file does that only somebody else can
do to it (replaced, truncated, rewritten, deleted) is a `FileChange`.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Literal

from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    FormatError,
    NotFoundError,
    PlanError,
    ShardkeepError,
    TruncatedFileError,
)
from shardkeep.files.kind import identify_bytes
from shardkeep.tfrecord.frame import first_byte_that_is_not_nul
from shardkeep.tfrecord.index import frame_starts
from shardkeep.tfrecord.live_frames import LiveFrames, Stall
from shardkeep.tfrecord.reader import explained
from shardkeep.tfrecord.watch import Watch

__all__ = ["FileChange", "follow"]

_HOLE_PATIENCE_S = 60.0
_KIND_BYTES = 4096

Identity = tuple[int, int]
ChangeKind = Literal["replaced", "truncated", "rewritten", "deleted"]


@dataclass(frozen=True)
class FileChange:
    """What happened to a file that was followed.

    Attributes
    ----------
    kind : {"replaced", "truncated", "rewritten", "deleted"}
        Another file has the name; the file is shorter than what was read of it; what was read of it is
        not there any more; the name is gone.
    path : str
        Its name.
    record : int
        Records of the old content that were delivered, all of them whole.
    offset_bytes : int
        Where the last of them ended.
    unfinished_bytes : int
        What the old file held behind it: a record that its writer never finished.
    noticed_s : float
        When, in seconds since the epoch.
    """

    kind: ChangeKind
    path: str
    record: int
    offset_bytes: int
    unfinished_bytes: int
    noticed_s: float

    def __str__(self) -> str:
        what = {
            "replaced": "was replaced by another file",
            "truncated": "was truncated below what was read of it",
            "rewritten": "was rewritten in place",
            "deleted": "was deleted",
        }[self.kind]
        rest = f", {self.unfinished_bytes:,} bytes of another behind them" if self.unfinished_bytes else ""
        records = "1 record" if self.record == 1 else f"{self.record:,} records"
        return f"{self.path}: {what} after {records} ({self.offset_bytes:,} bytes{rest})"


OnChange = Literal["raise", "follow"] | Callable[[FileChange], object]


def follow(
    path: str | os.PathLike[str],
    *,
    idle_timeout_s: float | None = 30.0,
    poll_s: float | None = None,
    from_start: bool = True,
    on_change: OnChange = "raise",
    grace_s: float = 5.0,
) -> Generator[bytes, None, None]:
    """Yield the records of a file that is still being written, each as soon as it is whole.

    Parameters
    ----------
    path : str or os.PathLike
        An uncompressed TFRecord file, written by `Writer` with ``exists="append"`` and ``flush()``, by
        TensorFlow, by anybody. It need not exist yet, nor its folder.
    idle_timeout_s : float or None
        End when nothing was written for so long. 0 reads what is there; None never ends.
    poll_s : float, optional
        Look at this interval. By default inotify tells, where the file system is local; elsewhere
        the pause grows from 10 ms to 0.5 s while nothing comes.
    from_start : bool
        False begins behind the last record that is whole at the time of this call.
    on_change : "raise", "follow" or function
        What to do when the file is replaced, truncated, rewritten in place or deleted. "follow" goes on with
        the first record of what has the name then, and waits for it. A function is called with a
        `FileChange`; if it returns, that is the same as "follow".
    grace_s : float
        How long a wrong checksum with later bytes behind it may stay wrong before it is damage. NULs are
        waited for longer, since network file systems show them for what is still under way: at least
        `idle_timeout_s` (60 s with None).

    Yields
    ------
    bytes
        Every record once, in file order, its checksums right.

    Raises
    ------
    CorruptRecordError
        A record is damaged, or a hole in front of later records was not filled.
    TruncatedFileError
        The idle time is over and the file ends inside a record or in NULs: its writer died or hangs.
    NotFoundError
        The idle time is over and there never was a file; with ``on_change="raise"`` also when it is deleted.
    CorruptDataError
        With ``on_change="raise"``: the file was replaced, truncated or rewritten. The message says which
        and after which record. What the old file held whole was yielded before.
    FormatError
        It is another kind of file, or compressed: the records of a compressed file have no places of
        their own, so that an unfinished one cannot be told from a damaged one.
    PlanError
        An option that means nothing.

    Notes
    -----
    The file is only read, by offset: any number of followers, threads and processes may follow it, and a
    follower that is carried across `fork` goes on in both processes. It holds two descriptors (file and
    inotify) until it ends or its ``close()`` is called. Ctrl-C ends a wait at once. The time that the caller
    takes between two records does not count as idle.

    A rewrite in place that leaves the file no shorter is recognised by the 64 bytes in front of the
    place; one that puts the same bytes there is not noticed.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "live.tfrecord")
    >>> writer = Writer(path, exists="append")
    >>> writer.write(b"first")
    >>> writer.flush()
    >>> records = follow(path, idle_timeout_s=0.2)
    >>> next(records)
    b'first'
    >>> writer.write(b"second")
    >>> writer.close()
    >>> list(records)
    [b'second']
    """
    if on_change not in ("raise", "follow") and not callable(on_change):
        raise PlanError(f'on_change={on_change!r} means nothing here: use "raise", "follow" or a function')
    for name, seconds in (("idle_timeout_s", idle_timeout_s), ("grace_s", grace_s)):
        if seconds is not None and not seconds >= 0:
            raise PlanError(f"{name}={seconds!r}: give seconds, 0 or more")
    if poll_s is not None and not poll_s > 0:
        raise PlanError(f"poll_s={poll_s!r}: give seconds, more than 0")
    follower = _Follower(
        os.fspath(path), idle_timeout_s, grace_s, on_change, Watch(os.fspath(path), poll_s=poll_s)
    )
    if not from_start:
        follower.begin_at_end()
    return follower.records()


class _Follower:
    def __init__(
        self, path: str, idle_timeout_s: float | None, grace_s: float, on_change: OnChange, watch: Watch
    ) -> None:
        self.path = path
        self._idle_timeout_s = idle_timeout_s
        self._grace_s = grace_s
        self._hole_patience_s = max(grace_s, _HOLE_PATIENCE_S if idle_timeout_s is None else idle_timeout_s)
        self._on_change = on_change
        self._watch = watch
        self._fd: int | None = None
        self._frames: LiveFrames | None = None  # None: there is no file
        self._ever = False
        self._begin: tuple[Identity, int, int] | None = None
        self._status: tuple[int, int] | None = None
        self._stall = Stall("end")
        self._stalled = self._active = time.monotonic()

    def begin_at_end(self) -> None:
        """Skip what is whole now. The place is kept, the file is not: nobody may ever ask for a record."""
        try:
            identity = _identity(os.stat(self.path))
            (starts,) = frame_starts([self.path])
            self._begin = (identity, int(starts[-1]), len(starts) - 1)
        except FileNotFoundError:
            pass
        except CorruptDataError as error:
            # What is not whole yet is what is wanted.
            self._begin = (identity, error.offset_bytes or 0, error.record or 0)

    def records(self) -> Generator[bytes, None, None]:
        self._active = time.monotonic()
        try:
            while True:
                frames, change = self._look()
                if frames is not None:
                    before = frames.record
                    # What was there before the name changed is read before the change is told.
                    stall = yield from frames.whole()
                    if frames.record > before:
                        self._active = time.monotonic()
                        self._watch.calm()
                        continue
                    self._note(stall)
                    if change is not None:
                        self._changed(change, frames)
                        continue
                if self._is_over():
                    return
                self._watch.wait(self._seconds_to_decide())
        finally:
            self._close()

    # -- the file ---------------------------------------------------------------------------------------

    def _open(self) -> None:
        try:
            # O_NONBLOCK: a pipe without a writer must be refused, not waited for.
            self._fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            return
        status = os.fstat(self._fd)
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{self.path}: a folder, pipe or device cannot be followed", path=self.path)
        self._watch.close()  # it watched the folder
        self._start_over()
        if self._begin is not None and self._begin[0] == _identity(status):
            _, offset_bytes, record = self._begin
            self._frames = LiveFrames(self._fd, offset_bytes=offset_bytes, record=record)
        self._begin = None
        self._ever = True

    def _start_over(self) -> None:
        self._frames = None if self._fd is None else LiveFrames(self._fd)
        self._status = None
        self._stall = Stall("end")
        self._active = time.monotonic()

    def _close(self) -> None:
        self._watch.close()
        self._frames = None
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def _look(self) -> tuple[LiveFrames | None, ChangeKind | None]:
        """Notice that somebody wrote, and whether the file is still the one that was opened."""
        if self._frames is None:
            self._open()
        frames, fd = self._frames, self._fd
        if frames is None or fd is None:
            return None, None
        try:
            now = os.fstat(fd)
            status = (now.st_size, now.st_mtime_ns)
            if status != self._status:
                self._status = status
                self._active = time.monotonic()
                # From its place on there is nothing of the old content to read.
                if now.st_size < frames.offset_bytes:
                    self._changed("truncated", frames)
                    return self._frames, None
                if not frames.is_intact():
                    self._changed("rewritten", frames)
                    return self._frames, None
            named = os.stat(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return frames, "deleted"
        except OSError as error:
            if error.errno == errno.ESTALE:  # how NFS tells it
                return frames, "replaced"
            raise
        return frames, None if _identity(named) == _identity(now) else "replaced"

    def _changed(self, kind: ChangeKind, frames: LiveFrames) -> None:
        moved = kind in ("replaced", "deleted")
        left_bytes = self._status[0] - frames.offset_bytes if moved and self._status is not None else 0
        change = FileChange(
            kind, self.path, frames.record, frames.offset_bytes, max(0, left_bytes), time.time()
        )
        if self._on_change == "raise":
            raise (NotFoundError if kind == "deleted" else CorruptDataError)(
                f'{change}; on_change="follow" goes on with what has the name',
                path=self.path,
                record=frames.record,
                offset_bytes=frames.offset_bytes,
            )
        if callable(self._on_change):
            self._on_change(change)
        if moved:
            self._close()
        self._start_over()

    # -- not yet, or never ------------------------------------------------------------------------------

    def _note(self, stall: Stall) -> None:
        if stall != self._stall:
            self._stall = stall
            self._stalled = time.monotonic()

    def _is_over(self) -> bool:
        """Tell whether to end; raise if what stands at this place is not a clean end."""
        stall, fd = self._stall, self._fd
        now = time.monotonic()
        idle = self._idle_timeout_s is not None and now - self._active >= self._idle_timeout_s
        if fd is None:
            if idle and not self._ever:
                message = f"{self.path}: there is no such file, and none came within {self._idle_timeout_s} s"
                raise NotFoundError(message, path=self.path)
            return idle
        if stall.kind == "end":
            return idle
        if stall.kind == "partial":
            if idle:
                raise self._fault(TruncatedFileError, f"{stall.what}, and nothing more comes")
            return False
        compression = self._compression() if stall.kind == "damage" else None
        if compression is not None:
            raise FormatError(
                f"{self.path}: a {compression}-compressed file cannot be followed, its unfinished end looks"
                " like damage; write it without compression, or read it with Reader when it is finished",
                path=self.path,
            )
        if not idle and now - self._stalled < self._patience_s():
            return False
        later = first_byte_that_is_not_nul(fd, stall.later_bytes) is not None
        if stall.kind == "hole" and idle and not later:
            what = "NUL bytes to the end of the file, and nothing more comes"
            raise self._fault(TruncatedFileError, what)
        if later or idle:
            raise self._fault(CorruptRecordError, stall.what)
        self._stalled = now
        return False

    def _seconds_to_decide(self) -> float:
        ends = []
        if self._idle_timeout_s is not None:
            ends.append(self._active + self._idle_timeout_s)
        if self._stall.kind in ("hole", "damage"):
            ends.append(self._stalled + self._patience_s())
        return max(0.0, min(ends, default=float("inf")) - time.monotonic())

    def _patience_s(self) -> float:
        return self._hole_patience_s if self._stall.kind == "hole" else self._grace_s

    def _compression(self) -> str | None:
        if self._fd is None or self._frames is None or self._frames.offset_bytes:
            return None
        return identify_bytes(os.pread(self._fd, _KIND_BYTES, 0)).compression

    def _fault(self, kind: type[ShardkeepError], what: str) -> Exception:
        frames = self._frames
        record, offset_bytes = (0, 0) if frames is None else (frames.record, frames.offset_bytes)
        message = f"{self.path}: record {record} at byte {offset_bytes:,}: {what}"
        error = kind(message, path=self.path, record=record, offset_bytes=offset_bytes)
        return explained(error) if isinstance(error, CorruptRecordError) else error


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino

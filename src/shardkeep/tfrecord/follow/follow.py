"""Reading of a file while another process writes it.

At each frame that is incomplete or wrong, the follower decides between *unfinished* and *damaged*. Missing
bytes and NULs count as unfinished until the file has been idle for a while. Wrong bytes are damage if later
bytes exist and a waiting time did not change them. A replaced, truncated, rewritten or deleted file is
reported as a `FileChange`.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from numbers import Real
from typing import Literal

from shardkeep._summary import summary
from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    FormatError,
    NotFoundError,
    PlanError,
    TruncatedFileError,
)
from shardkeep.files.kinds.kind import HEAD_BYTES, identify_bytes
from shardkeep.files.kinds.urls import local_path
from shardkeep.quantities import counted
from shardkeep.tfrecord.follow.live_frames import LiveFrames, Stall
from shardkeep.tfrecord.follow.watch import Watch
from shardkeep.tfrecord.format.file_kind import with_file_kind
from shardkeep.tfrecord.format.frame import first_byte_that_is_not_nul
from shardkeep.tfrecord.index.index import frame_starts

__all__ = ["FileChange", "follow"]

_HOLE_PATIENCE_S = 60.0

Identity = tuple[int, int]
ChangeKind = Literal["replaced", "truncated", "rewritten", "deleted"]


@dataclass(frozen=True)
class FileChange:
    """A change of a followed file that is not an append.

    Attributes
    ----------
    kind : {"replaced", "truncated", "rewritten", "deleted"}
        Another file has the name; the file is shorter than the part already read; the part already read has
        other content; the name no longer exists.
    path : str
        The path that was followed.
    record : int
        Number of records of the old content that were yielded, all of them whole.
    offset_bytes : int
        End of the last yielded record in the file.
    unfinished_bytes : int
        Bytes of the old file after that offset: a record that its writer never finished.
    noticed_s : float
        Time of the observation, in seconds since the epoch.
    """

    kind: ChangeKind
    path: str
    record: int
    offset_bytes: int
    unfinished_bytes: int
    noticed_s: float

    __repr__ = summary

    def __str__(self) -> str:
        what = {
            "replaced": "was replaced by another file",
            "truncated": "was truncated below the part already read",
            "rewritten": "was rewritten in place",
            "deleted": "was deleted",
        }[self.kind]
        rest = (
            f", {self.unfinished_bytes:,} bytes of an unfinished one after them"
            if self.unfinished_bytes
            else ""
        )
        return (
            f"{self.path}: {what} after {counted(self.record, 'record')} ({self.offset_bytes:,} bytes{rest})"
        )


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
        TensorFlow, or by any other program. Neither the file nor its folder needs to exist yet.
    idle_timeout_s : float or None
        End after this time without a write. 0 reads the existing records; None never ends.
    poll_s : float, optional
        Check the file at this interval. By default inotify reports changes on local file systems; elsewhere
        the pause between two checks grows from 10 ms to 0.5 s while the file does not change.
    from_start : bool
        False begins after the last record that is whole at the time of this call.
    on_change : "raise", "follow" or function
        Reaction to a file that is replaced, truncated, rewritten in place or deleted. "follow" continues with
        the first record of the file that has the name then, and waits for such a file. A function is called
        with a `FileChange`; if it returns, the effect is that of "follow".
    grace_s : float
        How long a wrong checksum with bytes after it may stay wrong before it counts as damage. The limit for
        NULs is longer, since network file systems show NULs in place of data in transit: at least
        `idle_timeout_s` (60 s with None).

    Yields
    ------
    bytes
        Every record once, in file order, with correct checksums.

    Raises
    ------
    CorruptRecordError
        A record is damaged, or a hole before later records was not filled.
    TruncatedFileError
        The idle time has passed and the file ends inside a record or in NULs: its writer died or hangs.
    NotFoundError
        The idle time has passed and the file never existed; with ``on_change="raise"`` also when it is
        deleted.
    CorruptDataError
        With ``on_change="raise"``: the file was replaced, truncated or rewritten. The message names the
        change and the last record before it. All whole records of the old file were yielded first.
    FormatError
        The file is of another kind, or compressed: the records of a compressed file have no offsets, so that
        an unfinished record cannot be distinguished from a damaged one.
    PlanError
        An option has an invalid value.

    Notes
    -----
    The file is only read, by offset: any number of followers, threads and processes may follow it, and after
    `fork` a follower continues in both processes. It holds two descriptors (file and inotify) until it ends
    or its ``close()`` is called. Ctrl-C ends a wait immediately. The time that the caller takes between two
    records does not count as idle.

    A rewrite in place that does not shorten the file is detected by comparing the last 64 bytes before the
    current offset; a rewrite that leaves these bytes equal is not detected.

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
        raise PlanError(f'on_change={on_change!r} is not valid: use "raise", "follow" or a function')
    for name, seconds in (("idle_timeout_s", idle_timeout_s), ("grace_s", grace_s)):
        is_endless = seconds is None and name == "idle_timeout_s"
        if not (is_endless or (isinstance(seconds, Real) and seconds >= 0)):
            raise PlanError(f"{name}={seconds!r} is not valid: pass seconds, 0 or more")
    if poll_s is not None and not (isinstance(poll_s, Real) and poll_s > 0):
        raise PlanError(f"poll_s={poll_s!r} is not valid: pass seconds, more than 0")
    follower = _Follower(
        local_path(path), idle_timeout_s, grace_s, on_change, Watch(os.fspath(path), poll_s=poll_s)
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
        self._frames: LiveFrames | None = None  # None: the file does not exist
        self._ever = False
        self._begin: tuple[Identity, int, int] | None = None
        self._status: tuple[int, int] | None = None
        self._stall = Stall("end")
        self._stalled = self._active = time.monotonic()

    def begin_at_end(self) -> None:
        """Skip the records that are whole now; only their end is kept, no descriptor stays open."""
        try:
            identity = _identity(os.stat(self.path))
            (starts,) = frame_starts([self.path])
            self._begin = (identity, int(starts[-1]), len(starts) - 1)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except CorruptDataError as error:
            # The unfinished record is the first one to yield.
            self._begin = (identity, error.offset_bytes or 0, error.record or 0)

    def records(self) -> Generator[bytes, None, None]:
        self._active = time.monotonic()
        try:
            while True:
                frames, change = self._check_file()
                if frames is not None:
                    before = frames.record
                    # Records written before the name changed are yielded before the change is reported.
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

    def _check_file(self) -> tuple[LiveFrames | None, ChangeKind | None]:
        """Return the frames to read and how the file changed; note a write as activity."""
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
                # No content of the old file is left after this offset.
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
            if error.errno == errno.ESTALE:  # the error of NFS for a file that was replaced
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
                f'{change}; pass on_change="follow" to continue with the file that has the name',
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
        """Return True at a clean end of the file; raise if it ends in another way."""
        stall, fd = self._stall, self._fd
        now = time.monotonic()
        idle = self._idle_timeout_s is not None and now - self._active >= self._idle_timeout_s
        if fd is None:
            if idle and not self._ever:
                raise NotFoundError(
                    f"{self.path}: no such file, and none appeared in {self._idle_timeout_s} s",
                    path=self.path,
                )
            return idle
        if stall.kind == "end":
            return idle
        if stall.kind == "partial":
            if idle:
                raise self._fault(TruncatedFileError, f"{stall.what}, and the file is idle")
            return False
        compression = self._compression() if stall.kind == "damage" else None
        if compression is not None:
            raise FormatError(
                f"{self.path}: a {compression}-compressed file cannot be followed, since its unfinished end"
                " looks like damage; write it without compression, or read it with Reader once finished",
                path=self.path,
            )
        if not idle and now - self._stalled < self._patience_s():
            return False
        later = first_byte_that_is_not_nul(fd, stall.later_bytes) is not None
        if stall.kind == "hole" and idle and not later:
            what = "NUL bytes to the end of the file, and the file is idle"
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
        return identify_bytes(os.pread(self._fd, HEAD_BYTES, 0)).compression

    def _fault(self, kind: type[CorruptDataError], what: str) -> Exception:
        frames = self._frames
        record, offset_bytes = (0, 0) if frames is None else (frames.record, frames.offset_bytes)
        message = f"{self.path}: record {record} at byte {offset_bytes:,}: {what}"
        error = kind(message, path=self.path, record=record, offset_bytes=offset_bytes)
        return with_file_kind(error)


def _identity(status: os.stat_result) -> Identity:
    return status.st_dev, status.st_ino

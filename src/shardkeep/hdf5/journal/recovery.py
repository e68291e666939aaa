"""Recovery: the file of a killed collector, restored to its last commit from the redo log.

The records of the log are applied in order, the file is cut to the length of the last one and synced, and the
log is removed. A crash in between repeats all of it, with the same result.

Readers recover files too, and a log changes a file. So a log is trusted only if the collector of this file
must have written it: a regular file that belongs to the owner of the data file, or to root, with the first
bytes of the data file in its header. All of that is checked on open descriptors. Logs of the first Shardkeep
with a collector do not say which file they belong to; only ``shardkeep collect FILE --recover`` applies one.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from shardkeep.errors import DurabilityError, FormatError, NotFoundError, UntrustedFileError
from shardkeep.files.durable import durably, sync_folder, write_all
from shardkeep.files.owner import this_process
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.journal.redo_log import LogHeader, LogScan, Record, read_log, scan_log
from shardkeep.hdf5.journal.superblock import SUPERBLOCK_BYTES

__all__ = ["LoggedCommits", "Recovery", "read_commits", "recover", "salvage_commits"]

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Recovery:
    """The result of `recover`.

    Attributes
    ----------
    commits : int
        Commits that were applied from the log.
    dropped_bytes : int
        Bytes after the last commit that were cut off.
    after_power_cut : bool
        Whether the machine was rebooted since, and the log was not a synced one: commits may be lost, and
        the file may be damaged.
    """

    commits: int = 0
    dropped_bytes: int = 0
    after_power_cut: bool = False


def recover(path: str, *, takes_old_log: bool = False) -> Recovery | None:
    """Restore a file to its last commit; return None if it was closed properly.

    Parameters
    ----------
    path : str
        Locked by the caller.
    takes_old_log : bool
        Whether to apply a log that does not say which file it belongs to.

    Raises
    ------
    DurabilityError
        The file cannot be written.
    NotFoundError, FormatError, CorruptDataError
        There is a log but no file, or the log belongs to another file. Nothing was changed.
    UntrustedFileError
        The log may be the work of another user, or does not say which file it belongs to. Nothing was
        changed.
    """
    name = log_path(path)
    if not os.path.lexists(name):
        return None
    recovery = Recovery()
    with durably("recover", path), contextlib.ExitStack() as stack:
        fd: int | None = None
        with contextlib.suppress(FileNotFoundError):
            fd = os.open(path, os.O_RDONLY | _SAFE)
            stack.callback(os.close, fd)
        found = read_commits(path, fd, takes_old_log=takes_old_log)
        if found is not None:
            dropped = 0 if fd is None else _apply(path, fd, found)
            recovery = Recovery(len(found.records), dropped, found.after_power_cut)
    with durably("remove", name):
        os.unlink(name)
        sync_folder(os.path.dirname(path))
    return recovery


@dataclass(frozen=True)
class LoggedCommits:
    """Valid commits of the redo log of a file."""

    header: LogHeader
    records: list[Record]

    @property
    def file_bytes(self) -> int:
        """Length of the file after the last commit; -1 if nothing was ever committed."""
        last = -1 if self.header.fresh else self.header.file_bytes
        return self.records[-1].file_bytes if self.records else last

    @property
    def after_power_cut(self) -> bool:
        """As of `Recovery`."""
        return not self.header.synced and self.header.boot != this_process().boot

    def write_to(self, fd: int) -> None:
        """Write the changes of all commits into the file, or a copy of it, and set its length."""
        for record in self.records:
            for offset, data in record.extents:
                write_all(fd, data, offset)
        if self.file_bytes >= 0:
            os.ftruncate(fd, self.file_bytes)


def read_commits(path: str, fd: int | None, *, takes_old_log: bool = False) -> LoggedCommits | None:
    """Return the commits in the redo log of a file; None without a log, or without a complete header.

    Parameters
    ----------
    path : str
    fd : int or None
        The file, open for reading; None if it does not exist.
    takes_old_log : bool
        As of `recover`; errors too.
    """
    found = read_log(log_path(path), None if fd is None else os.fstat(fd))
    if found is None:
        return None
    header, records = found[0], list(found[1])
    _check_file(path, fd, header, records, takes_old_log=takes_old_log)
    return LoggedCommits(header, records)


def salvage_commits(path: str, fd: int) -> tuple[LoggedCommits | None, LogScan | None]:
    """Return the commits of a redo log that may be damaged, and what is left of the log.

    Raises
    ------
    FormatError, CorruptDataError, UntrustedFileError, DurabilityError
        As `recover`: the log is of another file, or of another user.
    """
    scan = scan_log(log_path(path), os.fstat(fd))
    if scan is None or (scan.header is None and not scan.records):
        return None, scan
    # Without a header it is not known of which file the log is, as of one of an earlier Shardkeep.
    header = scan.header or LogHeader(
        fresh=False, synced=True, boot="", file_bytes=0, first_serial=scan.records[0].serial
    )
    _check_file(path, fd, header, scan.records, takes_old_log=True)
    return LoggedCommits(header, scan.records), scan


def _apply(path: str, checked: int, commits: LoggedCommits) -> int:
    """Apply the commits; return how many bytes after the last commit were cut off."""
    fd = os.open(path, os.O_RDWR | _SAFE)
    try:
        before = os.fstat(fd)
        if not os.path.samestat(before, os.fstat(checked)):
            raise DurabilityError(f"{path!r} was replaced while it was recovered: try again", path=path)
        commits.write_to(fd)
        os.fsync(fd)
        if commits.file_bytes < 0:
            os.unlink(path)
        return max(before.st_size - max(commits.file_bytes, 0), 0)
    finally:
        os.close(fd)


def _check_file(
    path: str, fd: int | None, header: LogHeader, records: list[Record], *, takes_old_log: bool
) -> None:
    """Raise if the log does not belong to the open file."""
    name = log_path(path)
    what = f"the redo log {name!r} holds commits"
    remedy = "put the file of that log back, or remove the log if its newest rows are not needed"
    if fd is None:
        if header.fresh and not records:
            return
        raise NotFoundError(f"{path!r} does not exist, but {what} of it: {remedy}", path=path)
    start = os.pread(fd, SUPERBLOCK_BYTES, 0).ljust(SUPERBLOCK_BYTES, b"\0")
    base = bytes.fromhex(header.superblock)
    if not base and not header.fresh:
        if not takes_old_log:
            message = f"the redo log {name!r} is of an earlier Shardkeep and does not say which file it is of"
            advice = f"if it is of {path!r}, run shardkeep collect {path} --recover; otherwise move it away"
            raise UntrustedFileError(f"{message}, so it is not used: {advice}", path=path)
        base = start
    # A crash while the log was applied may have left a mixture.
    allowed = [{byte} for byte in base.ljust(SUPERBLOCK_BYTES, b"\0")]
    for record in records:
        for offset, data in record.extents:
            for place, byte in enumerate(data[: max(SUPERBLOCK_BYTES - offset, 0)], offset):
                allowed[place].add(byte)
    shortest = min([header.file_bytes, *(one.file_bytes for one in records)])
    if os.fstat(fd).st_size < shortest or any(
        byte not in known for byte, known in zip(start, allowed, strict=False)
    ):
        raise FormatError(f"{path!r} is not the file of which {what}: {remedy}", path=path)

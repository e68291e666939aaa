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
from shardkeep.hdf5.journal.redo_log import LogHeader, Record, read_log
from shardkeep.hdf5.journal.superblock import SUPERBLOCK_BYTES

__all__ = ["Recovery", "recover"]

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
        found = read_log(name, None if fd is None else os.fstat(fd))
        if found is not None:
            header, records = found[0], list(found[1])
            _check_file(path, fd, header, records, takes_old_log=takes_old_log)
            power_cut = not header.synced and header.boot != this_process().boot
            dropped = 0 if fd is None else _apply(path, fd, header, records)
            recovery = Recovery(len(records), dropped, power_cut)
    with durably("remove", name):
        os.unlink(name)
        sync_folder(os.path.dirname(path))
    return recovery


def _apply(path: str, checked: int, header: LogHeader, records: list[Record]) -> int:
    """Apply the records; return how many bytes after the last commit were cut off."""
    fd = os.open(path, os.O_RDWR | _SAFE)
    try:
        before = os.fstat(fd)
        if not os.path.samestat(before, os.fstat(checked)):
            raise DurabilityError(f"{path!r} was replaced while it was recovered: try again", path=path)
        last = -1 if header.fresh else header.file_bytes
        for record in records:
            last = record.file_bytes
            for offset, data in record.extents:
                write_all(fd, data, offset)
        if last >= 0:
            os.ftruncate(fd, last)
        os.fsync(fd)
        if last < 0:
            os.unlink(path)
        return max(before.st_size - max(last, 0), 0)
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

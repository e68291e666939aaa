"""The file of a collector that was killed, brought to its last commit by the redo log.

A log changes a file, and readers bring it in too. So it is believed only if the collector of this file has
surely written it: a regular file of the owner of the data file, or of root, that holds the first bytes of the
data file (`shardkeep.hdf5.journal.redo_log`). All of that is checked on descriptors.

Logs of the first Shardkeep with a collector do not say which file they are of. No reader brings one in, nor a
collector that starts: only ``shardkeep collect FILE --recover``, whose user has decided it.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

from shardkeep.errors import DurabilityError, FormatError, NotFoundError, UntrustedFileError
from shardkeep.files.durable import durably
from shardkeep.files.owner import this_process
from shardkeep.hdf5.journal.live_file import sync_folder
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.journal.redo_log import LogHeader, Record, read_log, write_all
from shardkeep.hdf5.journal.superblock import SUPERBLOCK_BYTES

__all__ = ["Recovery", "recover"]

_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class Recovery:
    """The result of `recover`.

    Attributes
    ----------
    commits : int
        Commits that were brought from the log into the file.
    dropped_bytes : int
        Bytes after the last commit that were cut off.
    after_power_cut : bool
        The machine was started again since, and the log was not a synced one: commits may be lost,
        and the file may be damaged.
    """

    commits: int = 0
    dropped_bytes: int = 0
    after_power_cut: bool = False


def recover(path: str, *, takes_old_log: bool = False) -> Recovery | None:
    """Bring a file to its last commit; None if it was closed in good order.

    The caller holds the lock of the file. Doing it twice, or half and then again, is the same.

    Parameters
    ----------
    path : str
    takes_old_log : bool
        Whether a log counts that does not say which file it is of.

    Raises
    ------
    DurabilityError
        The file cannot be written.
    NotFoundError, FormatError, CorruptDataError
        There is a log but no file, or the file is another one than that of the log. Nothing was changed.
    UntrustedFileError
        The log may be the work of another user, or does not say which file it is of. Nothing was changed.
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
            _check_is_its_file(path, fd, header, records, takes_old_log=takes_old_log)
            power_cut = not header.synced and header.boot != this_process().boot
            dropped = 0 if fd is None else _bring_in(path, fd, header, records)
            recovery = Recovery(len(records), dropped, power_cut)
    with durably("remove", name):
        os.unlink(name)
        sync_folder(path)
    return recovery


def _bring_in(path: str, checked: int, header: LogHeader, records: list[Record]) -> int:
    """Write what the records say; return how many bytes after the last commit were cut off."""
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


def _check_is_its_file(
    path: str, fd: int | None, header: LogHeader, records: list[Record], *, takes_old_log: bool
) -> None:
    name = log_path(path)
    what = f"the redo log {name!r} holds commits"
    remedy = "put the file of that log back, or remove the log if its newest rows are not needed"
    if fd is None:
        if header.fresh and not records:
            return
        raise NotFoundError(f"there is no file {path!r}, but {what} of it: {remedy}", path=path)
    size = os.fstat(fd).st_size
    start = os.pread(fd, SUPERBLOCK_BYTES, 0).ljust(SUPERBLOCK_BYTES, b"\0")
    base = bytes.fromhex(header.superblock)
    if not base and not header.fresh:
        if not takes_old_log:
            message = f"the redo log {name!r} is of an earlier Shardkeep and does not say which file it is of"
            advice = f"if it is of {path!r}, run shardkeep collect {path} --recover; otherwise move it away"
            raise UntrustedFileError(f"{message}, so it is not used: {advice}", path=path)
        base = start
    # A crash while the log was brought into the file may have left a mixture.
    allowed = [{one} for one in base.ljust(SUPERBLOCK_BYTES, b"\0")]
    for record in records:
        for offset, data in record.extents:
            for place, one in enumerate(data[: max(SUPERBLOCK_BYTES - offset, 0)], offset):
                allowed[place].add(one)
    shortest = min([header.file_bytes, *(one.file_bytes for one in records)])
    if size < shortest or any(one not in its for one, its in zip(start, allowed, strict=False)):
        raise FormatError(f"{path!r} is not the file of which {what}: {remedy}", path=path)

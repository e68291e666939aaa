"""Every error that Shardkeep raises on purpose.

::

    ShardkeepError
    ├── CorruptDataError          the bytes of a file are not what its writer wrote
    │   ├── CorruptRecordError        a checksum does not match
    │   └── TruncatedFileError        the file ends before its content does
    ├── FormatError               (ValueError) another kind of file: says which
    ├── SchemaError               (ValueError) a feature, dtype or shape does not fit
    ├── PlanError                 (ValueError) a plan, state or receipt does not fit
    ├── WorldError                (ValueError) rank and world size are contradictory
    ├── NotFoundError             (FileNotFoundError)
    ├── ExistsError               (FileExistsError)
    ├── LockError                 (OSError) a lock cannot be had, or would not exclude
    │   └── LockTimeoutError          (TimeoutError) somebody else holds it: says who
    │       └── LockHeldError             (BlockingIOError) told by HDF5 under the guard
    ├── CollectorError            connection, protocol, authentication, the remote error
    ├── DurabilityError           (OSError) bytes could not be made durable
    ├── BudgetError               (OSError) the descriptor budget cannot serve the request
    ├── UntrustedFileError        (PermissionError) another user may have prepared a file beside the data
    ├── RepairRefusedError        a repair would lose or invent data
    ├── MissingExtraError         (ImportError) an optional dependency is not installed
    └── InternalError             a bug of Shardkeep itself

What a caller does about them: retry `LockTimeoutError`; look at the file that `CorruptDataError`
names; fix the call for the ``ValueError`` kinds; make room or rights for the
``OSError`` kinds. Each class carries the exit code that the command returns for it.

This module imports nothing from the package: the Rust half raises these classes too.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

__all__ = [
    "BudgetError",
    "CollectorError",
    "CorruptDataError",
    "CorruptRecordError",
    "DurabilityError",
    "ExistsError",
    "FormatError",
    "InternalError",
    "LockError",
    "LockHeldError",
    "LockTimeoutError",
    "MissingExtraError",
    "NotFoundError",
    "PlanError",
    "RepairRefusedError",
    "SchemaError",
    "ShardkeepError",
    "TruncatedFileError",
    "UntrustedFileError",
    "WorldError",
]


class ShardkeepError(Exception):
    """The root of the tree.

    Parameters
    ----------
    message : str
        One line: what is wrong, where, and what to do about it. Control characters are escaped.
    path : str or os.PathLike, optional
        The file or folder it is about.
    offset_bytes : int, optional
        Where in the file, counted from its first byte.
    record : int, optional
        Which record of the file, counted from 0.

    Attributes
    ----------
    path, offset_bytes, record
        As given; None where they do not apply.
    exit_code : int
        What the ``shardkeep`` command returns when this error ends it.

    Notes
    -----
    Every error of the tree survives `pickle` with all of its attributes, so it crosses process
    pools unharmed.

    Examples
    --------
    >>> try:
    ...     raise CorruptRecordError("bad checksum", path="a.tfrecord", record=3, offset_bytes=648)
    ... except ShardkeepError as error:
    ...     print(error.path, error.record, error.offset_bytes, error.exit_code)
    a.tfrecord 3 648 3
    """

    exit_code: ClassVar[int] = 3

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset_bytes: int | None = None,
        record: int | None = None,
    ) -> None:
        super().__init__(one_line(message))
        self.path = None if path is None else os.fspath(path)
        self.offset_bytes = offset_bytes
        self.record = record

    def __str__(self) -> str:
        # OSError.__str__ would print "[Errno None]"; the message alone is the contract.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        # `path` of an ImportError and `errno` of an OSError live in slots of their own, outside __dict__.
        state = {**self.__dict__, "path": self.path}
        if isinstance(self, OSError):
            state["errno"] = self.errno
        return _rebuild, (type(self), str(self), state)


def one_line(message: str) -> str:
    """Escape control characters: what comes from a file must not break lines or steer a terminal."""
    if message.isprintable():
        return message
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in message)


def _rebuild(cls: type[ShardkeepError], message: str, state: dict[str, Any]) -> ShardkeepError:
    error = cls(message)
    for name, value in state.items():
        setattr(error, name, value)
    return error


# -- the data itself ------------------------------------------------------------------------------


class CorruptDataError(ShardkeepError):
    """The bytes of a file are not what its writer wrote."""


class CorruptRecordError(CorruptDataError):
    """A checksum does not match: a record, or the length before it, is damaged."""


class TruncatedFileError(CorruptDataError):
    """The file ends inside a record, a compressed stream or a structure that must be whole."""


class FormatError(ShardkeepError, ValueError):
    """The file is of another kind; the message says which and what to do with it."""


# -- what the caller asked for ----------------------------------------------------------------------


class SchemaError(ShardkeepError, ValueError):
    """A feature, dtype or shape does not fit; the message shows both sides.

    Attributes
    ----------
    table : tuple of dict
        Who has what, where many files do not agree: ``name`` of the dataset (or ``dataset@attribute``),
        what the files ``has``, how many ``files``, their ``ranks``, the ``first`` of their paths.
    """

    exit_code = 2
    table: tuple[dict[str, Any], ...] = ()


class PlanError(ShardkeepError, ValueError):
    """A plan, a saved state or a receipt does not fit the data or the other ranks."""

    exit_code = 2


class WorldError(ShardkeepError, ValueError):
    """Rank and world size are missing, impossible or named differently by two sources."""

    exit_code = 2


class NotFoundError(ShardkeepError, FileNotFoundError):
    """A file, a folder or what a pattern should match is not there."""

    exit_code = 10


class ExistsError(ShardkeepError, FileExistsError):
    """The output is there already and nothing is overwritten unless asked."""

    exit_code = 2


class MissingExtraError(ShardkeepError, ImportError):
    """An optional dependency is not installed; the message has the ``pip install`` line."""

    exit_code = 2


# -- the machine ------------------------------------------------------------------------------------


class LockError(ShardkeepError, OSError):
    """A lock cannot be had, or the file system would not honour it."""

    exit_code = 11


class LockTimeoutError(LockError, TimeoutError):
    """Somebody else holds the lock.

    Attributes
    ----------
    holder : dict or None
        ``host``, ``pid``, ``command`` and ``since`` (seconds since the epoch) of the holder,
        where they could be found.
    """

    holder: dict[str, Any] | None = None


class LockHeldError(LockTimeoutError, BlockingIOError):
    """HDF5 could not get its lock; also caught by programs that wait for h5py's own error."""


class DurabilityError(ShardkeepError, OSError):
    """Bytes could not be written or synced: full disk, quota, no permission, I/O error."""

    exit_code = 2


class BudgetError(ShardkeepError, OSError):
    """The descriptor budget of the process cannot serve the request."""

    exit_code = 2


class UntrustedFileError(ShardkeepError, PermissionError):
    """A lock file, note, log, index or socket may be the work of another user, so it is not used."""

    exit_code = 2


class CollectorError(ShardkeepError):
    """Connection, protocol or authentication of a collector, or an error that it sent back."""


class RepairRefusedError(ShardkeepError):
    """A repair would lose or invent data, so it was not begun."""


class InternalError(ShardkeepError):
    """A bug of Shardkeep itself; please report it with the message."""

    exit_code = 1

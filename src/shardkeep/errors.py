"""Error classes of Shardkeep.

::

    ShardkeepError
    ├── CorruptDataError          the bytes of a file are not what its writer wrote
    │   ├── CorruptRecordError        a checksum does not match
    │   └── TruncatedFileError        the file ends before its content does
    ├── FormatError               (ValueError) a file of another kind, which the message names
    ├── SchemaError               (ValueError) a feature, dtype or shape does not fit
    ├── PlanError                 (ValueError) a plan, state or receipt does not fit
    ├── WorldError                (ValueError) rank and world size are contradictory
    ├── NotFoundError             (FileNotFoundError)
    ├── ExistsError               (FileExistsError)
    ├── LockError                 (OSError) a lock cannot be acquired, or would not exclude
    │   └── LockTimeoutError          (TimeoutError) another holder has the lock: the message names it
    │       └── LockHeldError             (BlockingIOError) reported by HDF5 under the guard
    ├── EngineError               an executor did not finish a task: a worker was killed, or cannot be reached
    ├── CollectorError            connection, protocol, authentication, the remote error
    ├── DurabilityError           (OSError) bytes could not be made durable
    ├── BudgetError               (OSError) the descriptor budget cannot serve the request
    ├── UntrustedFileError        (PermissionError) another user may have prepared a file next to the data
    ├── RemoteError               (OSError) a remote store failed, refused or was silent
    ├── RepairRefusedError        a repair would lose or invent data
    ├── MissingExtraError         (ImportError) an optional dependency is missing or too old
    └── InternalError             a bug of Shardkeep itself

What to do: retry after `LockTimeoutError`; inspect the file that `CorruptDataError` names; correct
the call after the ``ValueError`` kinds; free space or change permissions after the ``OSError`` kinds. Each
class has the exit code of the command for it.

This module imports nothing from the package but texts of paths: the Rust half raises these classes too.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

from shardkeep._paths_in_messages import repair_command, shown

__all__ = [
    "BudgetError",
    "CollectorError",
    "CorruptDataError",
    "CorruptRecordError",
    "DurabilityError",
    "EngineError",
    "ExistsError",
    "FormatError",
    "InternalError",
    "LockError",
    "LockHeldError",
    "LockTimeoutError",
    "MissingExtraError",
    "NotFoundError",
    "PlanError",
    "RemoteError",
    "RepairRefusedError",
    "SchemaError",
    "ShardkeepError",
    "TruncatedFileError",
    "UntrustedFileError",
    "WorldError",
]


class ShardkeepError(Exception):
    """Base class of all errors of Shardkeep.

    Parameters
    ----------
    message : str
        One line: the fault, its location, and advice. Control characters are escaped.
    path : str or os.PathLike, optional
        The file or folder of the error.
    offset_bytes : int, optional
        Offset in the file, counted from its first byte.
    record : int, optional
        Number of the record in the file, counted from 0.

    Attributes
    ----------
    path, offset_bytes, record
        The values of the parameters; None where they do not apply.
    exit_code : int
        Exit code of the ``shardkeep`` command for this error.

    Notes
    -----
    `pickle` keeps all attributes of an error, so it can be passed through process pools.

    Examples
    --------
    >>> try:
    ...     raise CorruptRecordError("bad checksum", path="a.tfrecord", record=3, offset_bytes=648)
    ... except ShardkeepError as error:
    ...     print(error.path, error.record, error.offset_bytes, error.exit_code)
    a.tfrecord 3 648 3
    """

    # Without it `_core` could not make panics a subclass of InternalError: the layout would differ.
    __slots__ = ()

    exit_code: ClassVar[int] = 3

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        offset_bytes: int | None = None,
        record: int | None = None,
    ) -> None:
        super().__init__(one_line(shown(message)))
        self.path = None if path is None else shown(os.fspath(path))
        self.offset_bytes = offset_bytes
        self.record = record

    def __str__(self) -> str:
        # OSError.__str__ would print "[Errno None]"; the message alone is the contract.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        # `path` of an ImportError and `errno` of an OSError are stored in slots, outside __dict__.
        state = {**self.__dict__, "path": self.path}
        if isinstance(self, OSError):
            state["errno"] = self.errno
        return _rebuild, (type(self), str(self), state)


def one_line(message: str) -> str:
    r"""Escape control characters, so that text from a file cannot break lines or control a terminal.

    A byte of a name that is not UTF-8 becomes ``\xe9``, as in JSON.
    """
    if message.isprintable():
        return message
    return "".join(char if char.isprintable() else _escaped(char) for char in message)


def _escaped(char: str) -> str:
    is_byte = "\udc80" <= char <= "\udcff"
    return f"\\x{ord(char) - 0xDC00:02x}" if is_byte else char.encode("unicode_escape").decode()


def _rebuild(cls: type[ShardkeepError], message: str, state: dict[str, Any]) -> ShardkeepError:
    error = cls(message)
    for name, value in state.items():
        setattr(error, name, value)
    return error


# -- the data itself ------------------------------------------------------------------------------


class CorruptDataError(ShardkeepError):
    """The bytes of a file differ from those that its writer wrote."""


class CorruptRecordError(CorruptDataError):
    """A checksum does not match: a record, or the length before it, is damaged.

    From Python 3.11 on, a traceback ends with the command that repairs the file.
    """

    def __init__(self, message: str, **place: Any) -> None:
        super().__init__(message, **place)
        _add_repair_note(self)


class TruncatedFileError(CorruptDataError):
    """The file ends inside a record, a compressed stream or a structure that must be whole.

    From Python 3.11 on, a traceback ends with the command that repairs the file.
    """

    def __init__(self, message: str, **place: Any) -> None:
        super().__init__(message, **place)
        _add_repair_note(self)


def _add_repair_note(error: CorruptDataError) -> None:
    if error.path is not None and os.path.isfile(error.path):
        error.__notes__ = [f"to write what is whole to a new file: {repair_command(error.path)}"]


class FormatError(ShardkeepError, ValueError):
    """The file is of another kind; the message names the kind and has advice."""

    exit_code = 2


# -- what the caller asked for ----------------------------------------------------------------------


class SchemaError(ShardkeepError, ValueError):
    """A feature, dtype or shape does not match; the message has the expected and the found one.

    Attributes
    ----------
    table : tuple of dict
        Groups of files that differ: ``name`` of the dataset (or ``dataset@attribute``), the value that the
        files have (``has``), the number of ``files``, their ``ranks``, the ``first`` of their paths.
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
    """A file or folder does not exist, or a pattern has no match."""

    exit_code = 10


class ExistsError(ShardkeepError, FileExistsError):
    """The output exists already, and overwriting was not requested."""

    exit_code = 2


class MissingExtraError(ShardkeepError, ImportError):
    """An optional dependency is not installed, too old, or fails when it is imported.

    The message has the reason and the ``pip install`` line.
    """

    exit_code = 2


# -- the machine ------------------------------------------------------------------------------------


class LockError(ShardkeepError, OSError):
    """A lock cannot be acquired, or has no effect on the file system."""

    exit_code = 11


class LockTimeoutError(LockError, TimeoutError):
    """Another holder has the lock.

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
    """A lock file, address file, log, index or socket may come from another user, so it is not used."""

    exit_code = 2


class RemoteError(ShardkeepError, OSError):
    """A remote store refused a request, failed, was silent for too long, or its object has changed.

    Attributes
    ----------
    path : str
        URL of the object, without credentials.
    status : int or None
        HTTP status of the last answer.
    request_id : str or None
        Identifier of the request, for the operator of the store.
    transient : bool
        True if the same request may succeed later; it has been repeated until the time limit.
    """

    exit_code = 2
    status: int | None = None
    request_id: str | None = None
    transient: bool = False


class EngineError(ShardkeepError):
    """An executor did not finish a task: a worker was killed, cannot be reached, or cannot load it."""

    exit_code = 2


class CollectorError(ShardkeepError):
    """A connection, protocol or authentication error of a collector, or an error that it returned."""


class RepairRefusedError(ShardkeepError):
    """A repair would lose or invent data, so it was not started."""


class InternalError(ShardkeepError):
    """A bug of Shardkeep itself; please report it with the message."""

    __slots__ = ()

    exit_code = 1

"""What the guard finds wrong, and how it says so."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Literal

from shardkeep.errors import LockError, LockHeldError
from shardkeep.files.locks.probe import HELD
from shardkeep.files.user_warning import warn_user
from shardkeep.hdf5.locking.holders import Holder, conflict
from shardkeep.hdf5.locking.open_errors import flock_errno

__all__ = ["Finding", "FindingKind", "OnFinding", "held", "is_held", "report"]

FindingKind = Literal[
    "second writer", "truncated while open", "two writers here", "forked writer", "locking off"
]
OnFinding = Literal["raise", "warn"]

# Those after which data are gone, or were shown to go.
_DESTROY = {"second writer", "truncated while open", "forked writer"}
_FIX = {
    "second writer": "give every process a file of its own (shardkeep.hdf5.WorkerFile) and merge them",
    "truncated while open": "write another file, or replace it as a whole (shardkeep.files.publish_path)",
    "two writers here": "open it once and pass the handle on",
    "forked writer": "open a file in the child, or end it with os._exit; start workers before opening",
    "locking off": "leave locking= and HDF5_USE_FILE_LOCKING alone, or use a file per process",
}


@dataclass(frozen=True)
class Finding:
    """One bad pattern, met at the moment it was about to happen.

    Attributes
    ----------
    kind : str
        "second writer", "truncated while open", "two writers here", "forked writer", "locking off".
    path : str
    what : str
        One clause: who did what to which file.
    fix : str
        What to do instead.
    destroys : bool
        Whether data would have been lost.
    holder : Holder or None
        The other process.
    """

    kind: FindingKind
    path: str
    what: str
    fix: str
    destroys: bool
    holder: Holder | None = None

    def __str__(self) -> str:
        return f"{self.what}: {self.fix}"

    @classmethod
    def of(cls, kind: FindingKind, path: str, what: str, holder: Holder | None = None) -> Finding:
        """Make one with the fix of its kind."""
        return cls(kind, path, what, _FIX[kind], kind in _DESTROY, holder)

    def error(self) -> LockError:
        """Return it as an error of the tree."""
        return LockError(str(self), path=self.path)


def report(finding: Finding, on_finding: OnFinding | None) -> None:
    """Raise or warn; without a choice, raise what destroys data and warn about the rest."""
    if on_finding == "raise" or (on_finding is None and finding.destroys):
        raise finding.error()
    warn_user(str(finding))


def is_held(error: BaseException) -> bool:
    """Whether h5py could not open a file because another process has locked it."""
    return isinstance(error, OSError) and flock_errno(error) in HELD


def held(path: str, *, writing: bool) -> LockHeldError:
    """Return the error that names the holder, in place of h5py's."""
    found = conflict(path, writing=writing)
    error = LockHeldError(str(found), path=path)
    error.errno, error.holder = errno.EAGAIN, found.holder
    return error

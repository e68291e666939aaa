"""Findings of the guard, and the errors and warnings that report them."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Literal

from shardkeep._summary import summary
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

# Findings after which data is lost.
_DESTROY = {"second writer", "truncated while open", "forked writer"}
_FIX = {
    "second writer": "write a file per process (shardkeep.hdf5.WorkerFile) and merge them",
    "truncated while open": "write another file, or replace the whole file (shardkeep.files.publish_path)",
    "two writers here": "open it once and pass the handle on",
    "forked writer": "open a file in the child, or end it with os._exit; start workers before opening",
    "locking off": "leave locking= and HDF5_USE_FILE_LOCKING alone, or use a file per process",
}


@dataclass(frozen=True)
class Finding:
    """A harmful use of h5py, which `guard` has found before it happened.

    Attributes
    ----------
    kind : str
        "second writer", "truncated while open", "two writers here", "forked writer" or "locking off".
    path : str
        The file.
    what : str
        One clause with the process, its action and the file.
    fix : str
        Advice on a safe way.
    destroys : bool
        Whether data would have been lost.
    holder : Holder or None
        The other process, if there is one.
    """

    kind: FindingKind
    path: str
    what: str
    fix: str
    destroys: bool
    holder: Holder | None = None

    __repr__ = summary

    def __str__(self) -> str:
        return f"{self.what}: {self.fix}"

    @classmethod
    def of(cls, kind: FindingKind, path: str, what: str, holder: Holder | None = None) -> Finding:
        """Return a finding with the fix of its kind.

        Parameters
        ----------
        kind : str
            Kind of the finding.
        path : str
            The file.
        what : str
            Description of the operation.
        holder : dict or None
            The process that has the file open.

        Returns
        -------
        Finding
        """
        return cls(kind, path, what, _FIX[kind], kind in _DESTROY, holder)

    def error(self) -> LockError:
        """Return the finding as an error.

        Returns
        -------
        LockError
        """
        return LockError(str(self), path=self.path)


def report(finding: Finding, on_finding: OnFinding | None) -> None:
    """Raise or warn as chosen; by default raise for findings that destroy data and warn about others."""
    if on_finding == "raise" or (on_finding is None and finding.destroys):
        raise finding.error()
    warn_user(str(finding))


def is_held(error: BaseException) -> bool:
    """Return whether h5py could not open a file because another process has locked it."""
    return isinstance(error, OSError) and flock_errno(error) in HELD


def held(path: str, *, writing: bool) -> LockHeldError:
    """Return the error that names the holder, in place of h5py's."""
    found = conflict(path, writing=writing)
    error = LockHeldError(str(found), path=path)
    error.errno, error.holder = errno.EAGAIN, found.holder
    return error

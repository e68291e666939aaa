"""Does HDF5 in this process lock what it opens?

``HDF5_USE_FILE_LOCKING`` overrides what a program asks for, both ways, and HDF5 reads it once, when it is
loaded. So the variable as it stands now does not tell; a file in memory that is opened does.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from dataclasses import dataclass
from typing import Literal

import h5py

from shardkeep.files.user_warning import warn_user
from shardkeep.hdf5.locking.guard_exemption import exempt

__all__ = ["VARIABLE", "LockingMode", "locking_mode", "warn_if_stale"]

VARIABLE = "HDF5_USE_FILE_LOCKING"
Effect = Literal["asked", "on", "off"]
# H5F__parse_file_lock_env_var in HDF5's H5Fint.c; other values are ignored there, without a word.
_ON = ("TRUE", "1", "BEST_EFFORT")
_OFF = ("FALSE", "0")


@dataclass(frozen=True)
class LockingMode:
    """How HDF5 of this process locks files.

    Attributes
    ----------
    effect : {"asked", "on", "off"}
        "asked": as ``locking=`` says, by default on. "on" and "off": whatever a program asks for.
    variable : str or None
        ``HDF5_USE_FILE_LOCKING`` as it is in ``os.environ`` now.
    stale : bool
        Whether the variable was changed after HDF5 was loaded, so that it does nothing.
    """

    effect: Effect
    variable: str | None
    stale: bool

    @property
    def is_unknown(self) -> bool:
        """Whether the variable has a value that HDF5 does not know, as ``false``, and does nothing."""
        return self.variable not in (None, "", *_OFF, *_ON)

    def __str__(self) -> str:
        told = {"asked": "on unless a program switches it off", "on": "always on", "off": "always off"}
        why = self._why_nothing("came after HDF5 was loaded")
        return f"HDF5 locking is {told[self.effect]}{why and f'; {why}'}"

    def _why_nothing(self, late: str) -> str:
        """Say why the variable does nothing; nothing if it does something, or is not there."""
        if self.is_unknown:
            return f"{VARIABLE}={self.variable!r} is no value that HDF5 knows and does nothing"
        return f"{VARIABLE}={self.variable} {late} and does nothing" if self.stale else ""


def locking_mode() -> LockingMode:
    """Return how HDF5 of this process locks; found by trying, once per process.

    Examples
    --------
    >>> locking_mode().effect in ("asked", "on", "off")
    True
    """
    variable = os.environ.get(VARIABLE)
    if not _tried:
        _tried.append(_try() or _meant(variable))
    effect = _tried[0]
    return LockingMode(effect, variable, _meant(variable) != effect)


def warn_if_stale() -> LockingMode:
    """Return `locking_mode` and warn if the variable was set too late, or to what HDF5 does not know."""
    mode = locking_mode()
    why = mode._why_nothing("was set after h5py was imported")
    if why and mode.variable not in _warned:
        _warned.add(mode.variable)
        advice = f"use {', '.join((*_ON, *_OFF))}" if mode.is_unknown else "set it before the program starts"
        warn_user(f"{why}: {advice}")
    return mode


def _meant(variable: str | None) -> Effect:
    if variable in _OFF:
        return "off"
    return "on" if variable in _ON else "asked"


def _try() -> Effect | None:
    # A real name is needed: HDF5 asks for the real path of what it opens.
    try:
        with tempfile.NamedTemporaryFile(suffix=".h5") as empty:
            with exempt(), h5py.File("empty", "w", driver="core", backing_store=False) as file:
                file.flush()
                os.pwrite(empty.fileno(), file.id.get_file_image(), 0)
            if _locks(empty.fileno(), empty.name, asked=False):
                return "on"
            return "asked" if _locks(empty.fileno(), empty.name, asked=True) else "off"
    except OSError:
        return None  # no folder for temporary files


def _locks(fd: int, path: str, *, asked: bool) -> bool:
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_file_locking(asked, False)
    try:
        opened = h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDWR, access)
    except (OSError, RuntimeError):
        return True  # a flock that fails was asked for
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
        return False
    except OSError:
        # A flock that always fails looks like a lock that is held; then opening would have failed.
        return _flock_works(fd, opened)
    finally:
        if opened.valid:
            opened.close()


def _flock_works(fd: int, opened: h5py.h5f.FileID) -> bool:
    opened.close()
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


_tried: list[Effect] = []
_warned: set[str | None] = set()

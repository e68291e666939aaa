"""Locking mode of HDF5 in this process: whether it locks the files that it opens.

``HDF5_USE_FILE_LOCKING`` overrides what a program asks for, both ways, and HDF5 reads it once, when it is
loaded. A later value of the variable has no effect, so the mode is found by opening a file.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from dataclasses import dataclass
from typing import Literal

import h5py

from shardkeep._summary import summary
from shardkeep.files.user_warning import warn_user
from shardkeep.hdf5.locking.open_errors import flock_errno

__all__ = ["VARIABLE", "LockingMode", "locking_mode", "warn_if_stale"]

VARIABLE = "HDF5_USE_FILE_LOCKING"
Effect = Literal["asked", "on", "off"]
# H5F__parse_file_lock_env_var in HDF5's H5Fint.c, which ignores other values silently.
_ON = ("TRUE", "1")
_OFF = ("FALSE", "0")
# "asked" if Shardkeep was imported before h5py (`shardkeep._file_locking`), otherwise "on".
_BEST_EFFORT = "BEST_EFFORT"


@dataclass(frozen=True)
class LockingMode:
    """Locking mode of HDF5 in this process, returned by `locking_mode`.

    Attributes
    ----------
    effect : {"asked", "on", "off"}
        "asked": HDF5 locks as the argument ``locking=`` says, by default yes. "on" and "off": HDF5 always
        locks, or never, whatever a program asks for.
    variable : str or None
        ``HDF5_USE_FILE_LOCKING`` as it is in ``os.environ`` now.
    stale : bool
        Whether the variable was changed after HDF5 was loaded, so that it has no effect.
    """

    effect: Effect
    variable: str | None
    stale: bool

    __repr__ = summary

    @property
    def is_unknown(self) -> bool:
        """Whether HDF5 does not know the value of the variable, such as ``false``, and ignores it."""
        return self.variable not in (None, "", *_OFF, *_ON, _BEST_EFFORT)

    def __str__(self) -> str:
        effects = {"asked": "on unless a program switches it off", "on": "always on", "off": "always off"}
        why = self._why_ignored("was set after HDF5 was loaded")
        return f"HDF5 locking is {effects[self.effect]}{why and f'; {why}'}"

    def _why_ignored(self, late: str) -> str:
        """Return why the variable has no effect; an empty text if it has one or is not set."""
        if self.is_unknown:
            return f"{VARIABLE}={self.variable!r} is not a value that HDF5 knows and has no effect"
        return f"{VARIABLE}={self.variable} {late} and has no effect" if self.stale else ""


def locking_mode() -> LockingMode:
    """Return how HDF5 of this process locks files.

    Returns
    -------
    LockingMode
        The effect is found once per process, by opening a temporary file; the variable is read at each call.

    Examples
    --------
    >>> locking_mode().effect in ("asked", "on", "off")
    True
    """
    variable = os.environ.get(VARIABLE)
    if not _found and (tried := _try()):
        _found.append(tried)
    effect = _found[0] if _found else _meant(variable)
    is_best_effort = variable == _BEST_EFFORT and effect == "on"
    return LockingMode(effect, variable, _meant(variable) != effect and not is_best_effort)


def warn_if_stale() -> LockingMode:
    """Return `locking_mode`, and warn if the variable was set too late or to a value that HDF5 ignores."""
    mode = locking_mode()
    why = mode._why_ignored("was set after h5py was imported")
    if why and mode.variable not in _warned:
        _warned.add(mode.variable)
        advice = (
            f"use {', '.join((*_ON, _BEST_EFFORT, *_OFF))}"
            if mode.is_unknown
            else "set it before the program starts"
        )
        warn_user(f"{why}: {advice}")
    return mode


def _meant(variable: str | None) -> Effect:
    if variable in _OFF:
        return "off"
    return "on" if variable in _ON else "asked"


def _try() -> Effect | None:
    # With a real name: HDF5 resolves the path of a file that it opens.
    try:
        with tempfile.NamedTemporaryFile(suffix=".h5") as empty:
            with h5py.File("empty", "w", driver="core", backing_store=False) as file:
                file.flush()
                os.pwrite(empty.fileno(), file.id.get_file_image(), 0)
            if _locks(empty.fileno(), empty.name, asked=False):
                return "on"
            return "asked" if _locks(empty.fileno(), empty.name, asked=True) else "off"
    except OSError:
        return None  # no folder for temporary files, no descriptor left: tried again at the next call


def _locks(fd: int, path: str, *, asked: bool) -> bool:
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_file_locking(asked, False)
    try:
        opened = h5py.h5f.open(os.fsencode(path), h5py.h5f.ACC_RDWR, access)
    except (OSError, RuntimeError) as error:
        if flock_errno(error) is None:
            raise OSError(str(error)) from error
        return True
    is_free = _try_flock(fd)
    opened.close()
    # A flock that always fails looks like a lock that is held, but then the opening would have failed.
    return not is_free and _try_flock(fd)


def _try_flock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        return False
    return True


_found: list[Effect] = []
_warned: set[str | None] = set()

"""Damage that HDF5 does not survive, found before HDF5 is asked.

HDF5 walks for ever over some structures that one damaged byte makes a circle of, and holds the interpreter's
lock meanwhile. The Rust half (`shardkeep._core.hdf5_damage`) reads what HDF5 would follow: the objects of a
file, the trees and heaps that lead to them, and the global heaps that attributes and rows point to.
"""

from __future__ import annotations

import os

import h5py

from shardkeep._core import hdf5_damage
from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.locking.mode import locking_mode

__all__ = ["is_written_here", "refuse_damage"]

# Some 10 ms; what a command reads beyond is not checked first.
_MOST_STRUCTURES = 16_384
_MOST_KNOWN = 16_384


def refuse_damage(path: str, *, name: str | None = None, rows: bool = False) -> None:
    """Refuse a file that HDF5 must not be asked about; it is read once in each state.

    Parameters
    ----------
    path : str
        A file that is not there, locked by a writer, or not HDF5 passes: HDF5 reports that.
    name : str, optional
        Path of the file as the caller wrote it, for the error.
    rows : bool
        Whether rows of variable length will be read too.

    Raises
    ------
    CorruptDataError
        A structure is damaged: the error has its offset.
    """
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return
    version = FileVersion.of(status)
    known = _known.get(version)
    if known is not None and known >= rows:
        return
    # Without locks a writer elsewhere may be in the middle of a change; HDF5 would read the same bytes.
    is_locked = locking_mode().effect != "off"
    is_read, found = hdf5_damage(path, lock=is_locked, most_structures=_MOST_STRUCTURES, rows=rows)
    if found is None:
        if is_read:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[version] = rows
        return
    if is_written_here(status):
        return
    what, offset_bytes = found
    name = path if name is None else name
    where = "" if offset_bytes is None else f" at byte {offset_bytes:,}"
    message = f"the HDF5 metadata of {name!r} are damaged{where} ({what}), so HDF5 is not asked to read them"
    advice = "restore the file from a copy and check that with `shardkeep verify`"
    raise CorruptDataError(f"{message}: {advice}", path=name, offset_bytes=offset_bytes)


def is_written_here(status: os.stat_result) -> bool:
    """Return whether HDF5 of this process may have changes of a file that are not on the disk yet."""
    for file in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE):
        try:
            if file.get_intent() & h5py.h5f.ACC_RDWR and os.path.samestat(os.stat(file.name), status):
                return True
        except (OSError, RuntimeError, ValueError):
            continue
    return False


# Whether the rows were read too.
_known: dict[FileVersion, bool] = {}

"""Search for damage with which HDF5 would hang or crash, before HDF5 reads a file.

One damaged byte can turn a structure into a circle, which HDF5 follows for ever while it holds the
interpreter's lock. The Rust half (`shardkeep._core.hdf5_damage`) reads the structures that HDF5 would follow:
the objects of a file, the trees and heaps that lead to them, and the global heaps to which attributes and
rows point.
"""

from __future__ import annotations

import contextlib
import os

import h5py

from shardkeep._core import hdf5_damage
from shardkeep.errors import CorruptDataError
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.locking.mode import locking_mode

__all__ = ["files_written_here", "refuse_damage"]

# About 10 ms; further structures are not checked.
_MOST_STRUCTURES = 16_384
_MOST_KNOWN = 16_384


def refuse_damage(path: str, *, name: str | None = None, rows: bool = False) -> None:
    """Raise if HDF5 must not read a file; each version of a file is checked once.

    Parameters
    ----------
    path : str
        A file that is missing, locked by a writer, or not HDF5 passes: HDF5 reports that.
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
    # Without locks another process may be changing the file; HDF5 would read the same bytes.
    is_locked = locking_mode().effect != "off"
    is_read, found = hdf5_damage(path, lock=is_locked, most_structures=_MOST_STRUCTURES, rows=rows)
    if found is None:
        if is_read:
            if len(_known) >= _MOST_KNOWN:
                _known.clear()
            _known[version] = rows
        return
    if (status.st_dev, status.st_ino) in files_written_here():
        return
    what, offset_bytes = found
    name = path if name is None else name
    where = "" if offset_bytes is None else f" at byte {offset_bytes:,}"
    message = f"the HDF5 metadata of {name!r} are damaged{where} ({what}), so HDF5 is not asked to read them"
    advice = "restore the file from a copy and check that with `shardkeep verify`"
    raise CorruptDataError(f"{message}: {advice}", path=name, offset_bytes=offset_bytes)


def files_written_here() -> set[tuple[int, int]]:
    """Return device and inode of files of which HDF5 of this process may hold unwritten changes."""
    found = set()
    for file in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE):
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            if file.get_intent() & h5py.h5f.ACC_RDWR:
                status = os.stat(file.name)
                found.add((status.st_dev, status.st_ino))
    return found


# Undamaged files, and whether their rows were checked too.
_known: dict[FileVersion, bool] = {}

"""Properties with which HDF5 files are opened for reading."""

from __future__ import annotations

import functools

import h5py

from shardkeep.hdf5.locking.guard_exemption import exempt

__all__ = ["read_access"]


@functools.lru_cache(maxsize=8)
def read_access(rdcc_nbytes: int | None = None, *, locked: bool = True) -> h5py.h5p.PropFAID:
    """Return the properties with which a file is opened for reading.

    h5py.File would make them anew for every file: half of what opening one costs.

    Parameters
    ----------
    rdcc_nbytes : int, optional
        Of the chunk cache of each dataset; HDF5's own without it.
    locked : bool
        Whether HDF5 takes its lock.
    """
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_fclose_degree(_close_degree())
    if rdcc_nbytes is not None:
        elements, slots, _, preemption = access.get_cache()
        access.set_cache(elements, slots, rdcc_nbytes, preemption)
    if not locked:
        access.set_file_locking(False, True)
    return access


@functools.lru_cache(maxsize=1)
def _close_degree() -> int:
    """Return h5py's own: two handles of one file in one process must agree on it, or the second fails."""
    with exempt(), h5py.File("empty", "w", driver="core", backing_store=False) as file:
        return int(file.id.get_access_plist().get_fclose_degree())

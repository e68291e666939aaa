"""Handles of HDF5 files: descriptor, exemption from the guard, and the handles that a forked child inherits.

A forked child inherits the HDF5 library with all its memory, and the open file with its lock. When the child
closes the file or ends, its HDF5 writes a stale view over the parent's file (10,050 rows became 50) and
releases the lock, which the parent shares. So before anything else runs in the child, the descriptor is
redirected to memory: what HDF5 of the child still writes, truncates or unlocks does not reach the file.

This runs after ``os.fork`` of Python. A fork by a C library that Python does not see is not covered.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator

import h5py

from shardkeep.hdf5.h5py_private import close_file

__all__ = ["close_without_writing", "descriptor_of", "exempt", "is_exempt", "redirect_to_memory"]

_thread = threading.local()


@contextlib.contextmanager
def exempt() -> Iterator[None]:
    """Exempt files that this thread opens in the body from `shardkeep.hdf5.guard`."""
    before = is_exempt()
    _thread.exempt = True
    try:
        yield
    finally:
        _thread.exempt = before


def is_exempt() -> bool:
    """Return whether this thread is in a body of `exempt`."""
    return getattr(_thread, "exempt", False)


def descriptor_of(file_id: h5py.h5f.FileID, *, ours: bool = False) -> int | None:
    """Return the descriptor of a file that HDF5 opened by its path; None for other drivers.

    With `ours` the driver is known and not checked. The descriptor is marked close-on-exec, which HDF5 does
    not do: a program started by this process would hold the lock after this process has ended.
    """
    try:
        if not ours and file_id.get_access_plist().get_driver() != h5py.h5fd.SEC2:
            return None
        fd = int(file_id.get_vfd_handle())
        fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        return fd
    except (OSError, RuntimeError, ValueError, TypeError):
        return None


def redirect_to_memory(fd: int) -> None:
    """Make a descriptor refer to memory; other descriptors of the open file keep it open and locked."""
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("forked-hdf5")
    else:
        memory, name = tempfile.mkstemp()
        os.unlink(name)
    try:
        os.dup2(memory, fd, inheritable=False)
    finally:
        os.close(memory)


def close_without_writing(file_id: h5py.h5f.FileID, fd: int | None, *, writes: bool) -> None:
    """Close a handle whose file must not be touched, such as one that a forked child inherited.

    Parameters
    ----------
    file_id : h5py.h5f.FileID
    fd : int or None
        Result of `descriptor_of`, called in the parent.
    writes : bool
        Whether the handle is a writer's. The descriptor of a reader that other handles of this process use
        too stays as it is.
    """
    try:
        if not file_id.valid:
            return
        if fd is not None and (writes or h5py.h5f.get_obj_count(file_id, h5py.h5f.OBJ_FILE) <= 1):
            redirect_to_memory(fd)
    except (OSError, RuntimeError, ValueError):
        return
    with contextlib.suppress(Exception):
        close_file(file_id)

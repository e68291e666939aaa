"""What becomes of an open HDF5 file in a forked child.

The child inherits the HDF5 library with everything that it holds in memory, and the open file with its
lock. When the child closes the file or ends, HDF5 there writes its stale view over the parent's file
(10,050 rows became 50), and gives the lock back, which is the parent's too. So in the child the
descriptor is made to point to memory, before anything else runs there: what HDF5 of the child still
writes, truncates or unlocks reaches nobody, and the child's HDF5 can let go of the file.

This runs after ``os.fork`` of Python. A fork by a C library that Python does not see is not covered.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile

import h5py

__all__ = ["close_identifier", "descriptor_of", "divert", "let_go"]


def descriptor_of(file_id: h5py.h5f.FileID, *, ours: bool = False) -> int | None:
    """Return the descriptor of a file that HDF5 opened by its path; None for other drivers.

    With `ours` it is known to be such a file.

    It is marked close-on-exec, which HDF5 does not do: a program started by this process would
    hold the lock after this process has ended.
    """
    try:
        if not ours and file_id.get_access_plist().get_driver() != h5py.h5fd.SEC2:
            return None
        fd = int(file_id.get_vfd_handle())
        fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        return fd
    except (OSError, RuntimeError, ValueError, TypeError):
        return None


def close_identifier(file_id: h5py.h5f.FileID) -> None:
    """Close a file and everything that is open in it, in the order of `h5py.File.close`."""
    file_id._close_open_objects(h5py.h5f.OBJ_LOCAL | ~h5py.h5f.OBJ_FILE)
    file_id._close_open_objects(h5py.h5f.OBJ_LOCAL | h5py.h5f.OBJ_FILE)
    file_id.close()


def divert(fd: int) -> None:
    """Make a descriptor point to memory; the open file behind it loses this reference and nothing else."""
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("forked-hdf5")
    else:
        memory, name = tempfile.mkstemp()
        os.unlink(name)
    try:
        os.dup2(memory, fd, inheritable=False)
    finally:
        os.close(memory)


def let_go(file_id: h5py.h5f.FileID, fd: int | None, *, writes: bool) -> None:
    """Close the view that a forked child has of its parent's file; the parent's file is not touched.

    Parameters
    ----------
    file_id : h5py.h5f.FileID
        Opened by the parent.
    fd : int or None
        From `descriptor_of`, asked in the parent.
    writes : bool
        Whether the parent writes. A reader's descriptor that other handles of this process use too
        is left alone.
    """
    try:
        if not file_id.valid:
            return
        if fd is not None and (writes or h5py.h5f.get_obj_count(file_id, h5py.h5f.OBJ_FILE) <= 1):
            divert(fd)
    except (OSError, RuntimeError, ValueError):
        return
    with contextlib.suppress(Exception):
        close_identifier(file_id)

"""The salvage of a damaged HDF5 file, a copy of it, and plain reading of it by h5py."""

import os
import shutil

import h5py

from benchmarks.peer_loop import serve
from shardkeep.jobs.salvage.hdf5.salvage import salvage_hdf5


def salvage(files, batch, most):
    output = f"{files[0]}.repaired"
    yield
    found = salvage_hdf5(files[0], output, tick=lambda count: None)
    assert found.items("lost") == 100
    yield 1
    os.unlink(output)


def copy(files, batch, most):
    """Copy the file, synced as the output of a salvage is."""
    output = f"{files[0]}.copy"
    yield
    shutil.copyfile(files[0], output)
    with open(output, "rb+") as file:
        os.fsync(file.fileno())
    yield 1
    os.unlink(output)


def read(files, batch, most):
    with h5py.File(files[0]) as file:
        for name in ("x", "y"):
            for start in range(0, len(file[name]), 8192):
                file[name][start : start + 8192]
    return 1


if __name__ == "__main__":
    serve({"salvage": salvage, "copy": copy, "read": read}, "h5py")

"""The salvage of a damaged HDF5 file, and plain reading of it by h5py."""

from pathlib import Path

import h5py

from benchmarks.peer_loop import serve
from shardkeep.jobs.salvage.hdf5.salvage import salvage_hdf5


def salvage(files, batch, most):
    output = Path(f"{files[0]}.repaired")
    try:
        found = salvage_hdf5(files[0], str(output), tick=lambda count: None)
        assert found.items("lost") == 100
    finally:
        output.unlink(missing_ok=True)
    return 1


def read(files, batch, most):
    with h5py.File(files[0]) as file:
        for name in ("x", "y"):
            for start in range(0, len(file[name]), 8192):
                file[name][start : start + 8192]
    return 1


if __name__ == "__main__":
    serve({"salvage": salvage, "read": read}, "h5py")

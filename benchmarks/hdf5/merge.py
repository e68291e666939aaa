"""Merging of HDF5 files by Shardkeep, by cat, by h5repack, and by decoding and encoding. All are synced."""

import os
import shutil
import subprocess
from functools import partial

import h5py

from benchmarks.peer_loop import serve
from shardkeep.hdf5 import merge

GZIP = {"compression": "gzip", "compression_opts": 1, "shuffle": True}


def result(files):
    path = f"{os.path.dirname(os.path.abspath(files[0]))}.merged"
    if os.path.exists(path):
        os.unlink(path)
    return path


def merged(files, batch, most, *, mode):
    output = result(files)
    yield
    report = merge(files if len(files) > 1 else files[0], output, mode=mode)
    yield len(report.sources)


def synced(path):
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def cat(files, batch, most):
    output = result(files)
    yield
    with open(output, "wb") as file:
        subprocess.run(["cat", *files], stdout=file, check=True)
    synced(output)
    yield len(files)


def h5repack(files, batch, most):
    """Copy each file, since h5repack does not merge."""
    if not shutil.which("h5repack"):
        raise RuntimeError("h5repack is not installed (Debian: hdf5-tools)")
    part = files[: most or len(files)]
    yield
    for path in part:
        output = result(files)
        subprocess.run(["h5repack", path, output], check=True)
        synced(output)
    yield len(part)


def decoded(files, batch, most):
    """Read the rows of each file and append them."""
    output, part = result(files), files[: most or len(files)]
    yield
    with h5py.File(output, "w") as file:
        dataset = None
        for path in part:
            with h5py.File(path) as source:
                rows = source["x"][:]
                if dataset is None:
                    options = {"maxshape": (None, *rows.shape[1:]), "chunks": source["x"].chunks, **GZIP}
                    dataset = file.create_dataset("x", (0, *rows.shape[1:]), rows.dtype, **options)
                dataset.resize(len(dataset) + len(rows), 0)
                dataset[-len(rows) :] = rows
    synced(output)
    yield len(part)


JOBS = {
    "copy": partial(merged, mode="copy"),
    "virtual": partial(merged, mode="virtual"),
    "cat": cat,
    "h5repack": h5repack,
    "h5py": decoded,
}

if __name__ == "__main__":
    serve(JOBS, "h5py")

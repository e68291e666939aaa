"""Rows appended to a worker file, and to plain h5py by resize and assign. Neither is synced to the disk.

So the comparison is of the work on rows and not of the disk.
"""

import tempfile
from functools import partial

import h5py
import numpy as np

from benchmarks.peer_loop import serve
from shardkeep.hdf5 import WorkerFile
from shardkeep.world import World

CHUNK_BYTES = 512 * 1024
# Name: rows in a call, calls of Shardkeep and of h5py, values in a row; 0 values are a scalar.
CASES = {
    "one": (1, 200_000, 3_000, 128),
    "scalar": (1, 300_000, 3_000, 0),
    "64": (64, 5_000, 2_000, 128),
    "1024": (1024, 400, 400, 128),
    "gzip": (1024, 20, 20, 128),
}


def block_of(rows, values):
    return np.random.default_rng(0).random((rows, values) if values else rows, np.float32)


def ours(files, batch, most, *, case):
    rows, calls, _, values = CASES[case]
    block = block_of(rows, values)
    options = {"compression": "gzip"} if case == "gzip" else {}
    calls = min(calls, batch)
    with (
        tempfile.TemporaryDirectory(dir=files[0]) as folder,
        WorkerFile(folder, World(0, 1), durable=False, **options) as out,
    ):
        yield
        for _ in range(calls):
            out.append("rows", block)
        out.commit(step=1)
        yield rows * calls


def plain(files, batch, most, *, case):
    rows, _, calls, values = CASES[case]
    block = block_of(rows, values)
    shape = block.shape[1:]
    chunks = (max(1, CHUNK_BYTES // block[0].nbytes), *shape)
    options = {"compression": "gzip", "compression_opts": 4, "shuffle": True} if case == "gzip" else {}
    calls = min(calls, batch)
    with tempfile.TemporaryDirectory(dir=files[0]) as folder, h5py.File(f"{folder}/rows.h5", "w") as file:
        dataset = file.create_dataset(
            "rows", shape=(0, *shape), maxshape=(None, *shape), chunks=chunks, dtype="f4", **options
        )
        yield
        for i in range(calls):
            dataset.resize((i + 1) * rows, 0)
            dataset[i * rows :] = block
        file.flush()
        yield rows * calls


JOBS = {f"{job.__name__} {case}": partial(job, case=case) for job in (ours, plain) for case in CASES}

if __name__ == "__main__":
    serve(JOBS, "h5py")

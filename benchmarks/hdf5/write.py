"""Rows of four processes in HDF5: the collector, worker files with a merge, one writer with a queue, h5py.

With ``flush`` no side syncs; with ``fsync`` the collector syncs each commit, and plain h5py once at its end.
"""

import os
import tempfile
from functools import partial

import h5py
import numpy as np

from benchmarks.hdf5.producers import CHUNK_ROWS, FORK, PRODUCERS, VALUES, start
from benchmarks.peer_loop import serve
from shardkeep.hdf5 import Collector, WorkerFile, connect, merge
from shardkeep.world import World


def send(address, rows, scalar, rank, wait):
    with connect(address, World(rank, PRODUCERS)) as client:
        value = 0.5 if scalar else np.full((1, VALUES), rank, np.float32)
        client.append("rows", value)
        client.flush()
        wait()
        for _ in range(rows):
            client.append("rows", value)
        client.flush()


def collector(files, batch, most, *, scalar=False, durability="flush"):
    with (
        tempfile.TemporaryDirectory(dir=files[0]) as folder,
        Collector(f"{folder}/all.h5", durability=durability) as collector,
    ):
        run = start(send, collector.address, batch // PRODUCERS, scalar)
        yield
        run()
        yield batch


def fill(folder, rows, rank, wait):
    value = np.full((1, VALUES), rank, np.float32)
    with WorkerFile(folder, World(rank, PRODUCERS), durable=False) as out:
        wait()
        for _ in range(rows):
            out.append("rows", value)
        out.commit(step=1)


def worker_files(files, batch, most):
    with tempfile.TemporaryDirectory(dir=files[0]) as folder:
        run = start(fill, f"{folder}/run", batch // PRODUCERS)
        yield
        run()
        merge(f"{folder}/run", f"{folder}/all.h5")
        yield batch


def plain(files, batch, most, *, is_synced=False):
    """Write whole chunks in one process, without others."""
    block = np.ones((CHUNK_ROWS, VALUES), np.float32)
    with tempfile.TemporaryDirectory(dir=files[0]) as folder:
        path = f"{folder}/rows.h5"
        yield
        with h5py.File(path, "w") as file:
            options = {"chunks": block.shape, "maxshape": (None, VALUES)}
            dataset = file.create_dataset("rows", (batch, VALUES), "f4", **options)
            for first in range(0, batch, CHUNK_ROWS):
                rows = min(CHUNK_ROWS, batch - first)
                dataset[first : first + rows] = block[:rows]
        if is_synced:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        yield batch


def put(queue, rows, rank, wait):
    value = np.full((1, VALUES), rank, np.float32)
    wait()
    for _ in range(rows):
        queue.put(value)


def write(queue, path, rows):
    with h5py.File(path, "w") as file:
        options = {"chunks": (CHUNK_ROWS, VALUES), "maxshape": (None, VALUES)}
        dataset = file.create_dataset("rows", (0, VALUES), "f4", **options)
        for _ in range(rows):
            value = queue.get()
            dataset.resize(len(dataset) + len(value), 0)
            dataset[-len(value) :] = value


def queue(files, batch, most):
    """Use the recipe of multiprocessing.Queue and one writer, with resize and assign for each message."""
    rows = max(min(batch, most or batch) // PRODUCERS, 1)
    with tempfile.TemporaryDirectory(dir=files[0]) as folder:
        messages = FORK.Queue(64)
        writer = FORK.Process(target=write, args=(messages, f"{folder}/rows.h5", rows * PRODUCERS))
        writer.start()
        run = start(put, messages, rows)
        yield
        run()
        writer.join()
        yield rows * PRODUCERS


JOBS = {
    "collector": collector,
    "collector fsync": partial(collector, durability="fsync"),
    "scalars": partial(collector, scalar=True),
    "worker files": worker_files,
    "plain": plain,
    "plain fsync": partial(plain, is_synced=True),
    "queue": queue,
}

if __name__ == "__main__":
    serve(JOBS, "h5py")

"""Opening and reading of HDF5 files by `hdf5.open` and by h5py, also of virtual files of many sources."""

import multiprocessing
import time
from functools import partial

import h5py
import numpy as np

import shardkeep as sk
from benchmarks.peer_loop import serve

TIMES = 200


def opened(files, batch, most, *, opener):
    for _ in range(TIMES):
        with opener(files[0]):
            pass
    return TIMES


def first_row(files, batch, most, *, opener):
    for _ in range(TIMES):
        with opener(files[0]) as file:
            file["x"][5]
    return TIMES


def sliced(files, batch, most, *, opener, rows):
    with opener(files[0]) as file:
        dataset = file["x"]
        starts = range(0, min(len(dataset), 5_000 * rows), rows)
        yield
        for start in starts:
            dataset[start : start + rows]
        yield len(starts)


def whole(files, batch, most, *, opener, at=0):
    with opener(files[at]) as file:
        return len(file["x"][:])


def whole_first(files, batch, most, *, opener, at=0):
    """Open and read a file in a new process, in which nothing was opened before."""
    go, ready = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    child = context.Process(target=_wait_and_read, args=(files, opener, at, ready))
    child.start()
    go.recv()
    yield
    go.send(None)
    yield go.recv()
    child.join()


def _wait_and_read(files, opener, at, pipe):
    pipe.send(None)
    pipe.recv()
    pipe.send(whole(files, 0, 0, opener=opener, at=at))
    time.sleep(0.01)


def random(files, batch, most, *, opener, at=0):
    with opener(files[at]) as file:
        dataset = file["x"]
        numbers = np.random.default_rng(0).integers(0, len(dataset), 500).tolist()
        yield
        for number in numbers:
            dataset[number]
        yield len(numbers)


JOBS = {
    f"{side} {name}": partial(job, opener=opener, **options)
    for side, opener in (("ours", sk.hdf5.open), ("h5py", h5py.File))
    for name, job, options in (
        ("opened", opened, {}),
        ("first row", first_row, {}),
        ("one row", sliced, {"rows": 1}),
        ("1024 rows", sliced, {"rows": 1024}),
        ("whole", whole, {}),
        ("whole plain", whole, {"at": 1}),
        ("whole first", whole_first, {}),
        ("whole first plain", whole_first, {"at": 1}),
        ("random", random, {}),
        ("random plain", random, {"at": 1}),
    )
}

if __name__ == "__main__":
    serve(JOBS, "h5py")

"""zarr: four processes write chunks of one array, which is a folder and not a file."""

import tempfile

import numpy as np
import zarr

from benchmarks.hdf5.producers import CHUNK_ROWS, FORK, PRODUCERS, VALUES, start
from benchmarks.peer_loop import serve


def create(path, rows):
    options = {"shape": (rows, VALUES), "chunks": (CHUNK_ROWS, VALUES), "dtype": "f4", "compressors": None}
    zarr.create_array(path, **options)


def fill(path, rows, rank, wait):
    block = np.full((CHUNK_ROWS, VALUES), rank, np.float32)
    array = zarr.open_array(path, mode="r+")
    wait()
    for first in range(rank * CHUNK_ROWS, rows, PRODUCERS * CHUNK_ROWS):
        array[first : first + CHUNK_ROWS] = block[: rows - first]


def write(files, batch, most):
    with tempfile.TemporaryDirectory(dir=files[0]) as folder:
        # In a new process: a forked child cannot use the threads that zarr starts here.
        made = FORK.Process(target=create, args=(f"{folder}/rows.zarr", batch))
        made.start()
        made.join()
        run = start(fill, f"{folder}/rows.zarr", batch)
        yield
        run()
        yield batch


if __name__ == "__main__":
    serve({"write": write}, "zarr")

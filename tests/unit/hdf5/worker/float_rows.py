"""Rows of 128 float32 that a worker file of one rank has, and those of its merge."""

import h5py
import numpy as np

from shardkeep.hdf5 import merge
from shardkeep.world import World

WORLD = World(rank=0, size=1)
ONE_CHUNK = 1024
"""Rows of a chunk."""


def float_rows(start, stop):
    """Return rows, each of equal numbers: that of the row."""
    return np.repeat(np.arange(start, stop, dtype="f4")[:, None], 128, axis=1)


def merged(run, name="x"):
    """Merge a run; return the rows of a dataset."""
    output = run / "all.h5"
    merge(run, output, exists="replace")
    with h5py.File(output) as file:
        return file[name][:]

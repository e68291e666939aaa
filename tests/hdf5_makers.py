"""HDF5 files of every kind that Shardkeep reads, small, for tests that damage them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np

import shardkeep as sk

__all__ = ["MAKERS", "make"]


def _run(folder: Path) -> str:
    run = str(folder / "run")
    for rank in range(2):
        with sk.hdf5.WorkerFile(run, sk.World(rank, 2)) as out:
            out.declare("z", "f4", (4,), compression="gzip", chunk_rows=8)
            out.append("z", np.arange(80, dtype="f4").reshape(20, 4))
            out.append("a", [1, 2, 3])
            out.append("words", ["one", "two", "a longer one"])
            out.append("g/inner", np.arange(300))
            out.put("labels", np.array(["cat", "dog"], h5py.string_dtype()))
            out.set_attribute("unit", "nats", on="a")
            out.set_attribute("names", ["x", "y"], on="g")
            out.commit(step=1)
    return run


def segment(folder: Path) -> Path:
    """Make a segment of a worker file."""
    return Path(_run(folder)) / "rank-00001" / "00000000-step-1.h5"


def merged(folder: Path) -> Path:
    """Make a merged copy."""
    sk.hdf5.merge(_run(folder), folder / "merged.h5")
    return folder / "merged.h5"


def virtual(folder: Path) -> Path:
    """Make a merged file that points to its sources."""
    run = str(folder / "run")
    for rank in range(3):
        with sk.hdf5.WorkerFile(run, sk.World(rank, 3)) as out:
            out.append("x", np.arange(12).reshape(4, 3))
            out.set_attribute("unit", "m", on="x")
            out.commit(step=0)
    sk.hdf5.merge(run, folder / "virtual.h5", mode="virtual")
    return folder / "virtual.h5"


def collected(folder: Path) -> Path:
    """Make the file of a collector."""
    path = folder / "collected.h5"
    address = f"ipc://{folder}/s"
    with (
        sk.hdf5.Collector(path, address=address) as collector,
        sk.hdf5.connect(collector.address, sk.World(0, 1)) as client,
    ):
        client.append("x", np.arange(30).reshape(10, 3))
        client.append("words", ["one", "two"])
        client.flush()
    return path


def _foreign(path: Path, libver: str) -> Path:
    with h5py.File(path, "w", libver=libver) as file:
        file.attrs["title"] = "a file of another program"
        file["numbers"] = np.arange(40).reshape(10, 4)
        file["numbers"].attrs["unit"] = "m"
        file["numbers"].attrs["tags"] = ["one", "two"]
        for number in range(12):  # from the ninth on in a heap, where the format has one
            file["numbers"].attrs[f"note{number}"] = f"text {number}"
        file["text"] = ["rows", "of", "variable length"]
        file.create_dataset("packed", data=["text"] * 60, chunks=(7,), compression="gzip", shuffle=True)
        grown = file.create_dataset("grown", (0,), "i4", maxshape=(None,), chunks=(1,))
        grown.resize((100,))  # more chunks than one node of a B-tree holds
        grown[:] = np.arange(100)
        for number in range(10):
            file[f"many/d{number}"] = np.float32(number)
        pairs = np.array([(1, "one"), (2, "two")], [("n", "i4"), ("word", h5py.string_dtype())])
        file["deep/er/still"] = pairs
        ragged = file.create_dataset("ragged", (2,), h5py.vlen_dtype(np.int32))
        ragged[:] = [np.arange(3), np.arange(2)]
        file["soft"] = h5py.SoftLink("/numbers")
        file["outside"] = h5py.ExternalLink("nowhere.h5", "x")
        file["type"] = np.dtype("f4")
        file["color"] = np.array([0, 1], h5py.enum_dtype({"red": 0, "blue": 1}))
        file["empty"] = h5py.Empty("f4")
        file["numbers"].make_scale("n")
        file["grown"].dims[0].label = "t"
    return path


def foreign_earliest(folder: Path) -> Path:
    """Make a file as h5py makes it by default."""
    return _foreign(folder / "earliest.h5", "earliest")


def foreign_latest(folder: Path) -> Path:
    """Make a file of the newest format."""
    return _foreign(folder / "latest.h5", "latest")


MAKERS: dict[str, Callable[[Path], Path]] = {
    one.__name__: one for one in (segment, merged, virtual, collected, foreign_earliest, foreign_latest)
}


def make(kind: str, folder: Path) -> Path:
    """Make a file of a kind in a new folder; return its path."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return MAKERS[kind](folder)

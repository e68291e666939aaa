"""Files of the tables of HDF5, made once in a folder and reused."""

import time
from pathlib import Path

import h5py
import numpy as np

import shardkeep as sk

__all__ = ["damaged", "empty", "gzip_files", "one", "segments", "virtual"]


def empty(folder: Path, scale: float) -> list[str]:
    """Return an empty folder on the measured disk."""
    path = folder / "empty"
    path.mkdir(parents=True, exist_ok=True)
    return [str(path)]


def gzip_files(folder: Path, scale: float, *, rows: int, chunk_rows: int) -> list[str]:
    """Make 64 files of float32 rows of 512 bytes, rounded so that they compress to about 70 %."""
    count = max(int(64 * scale), 2)
    home = folder / f"gzip-{count}-{rows}-{chunk_rows}"
    paths = [str(home / f"{i:03d}.h5") for i in range(count)]
    if not Path(paths[-1]).exists():
        home.mkdir(parents=True, exist_ok=True)
        block = np.round(np.random.default_rng(0).standard_normal((rows, 128)), 2).astype("f4")
        for path in paths:
            with h5py.File(path, "w") as file:
                options = {"compression": "gzip", "compression_opts": 1, "shuffle": True}
                file.create_dataset("x", data=block, chunks=(chunk_rows, 128), **options)
    return paths


def segments(folder: Path, scale: float) -> list[str]:
    """Make the run folder of 40 ranks with 100 commits each."""
    commits = max(int(100 * scale), 1)
    run = folder / f"segments-{commits}"
    if not run.exists():
        for rank in range(40):
            with sk.hdf5.WorkerFile(run, sk.World(rank, 40), durable=False) as out:
                for step in range(commits):
                    out.append("x", np.full((25, 8), rank * 1000 + step, "f4"))
                    out.commit(step=step)
    return [str(run)]


def one(folder: Path, scale: float) -> list[str]:
    """Make a file of rows of 512 bytes."""
    path = folder / "open-one.h5"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with h5py.File(path, "w") as file:
            file["x"] = np.zeros((65_536, 128), "f4")
    return [str(path)]


def virtual(folder: Path, scale: float) -> list[str]:
    """Make a virtual file of 4,000 sources, and a plain file with the same rows."""
    sources = max(int(4_000 * scale), 2)
    run = folder / f"open-{sources}"
    paths = [folder / f"open-{kind}-{sources}.h5" for kind in ("virtual", "plain")]
    if not all(path.exists() for path in paths):
        run.mkdir(parents=True, exist_ok=True)
        rows = np.zeros((64, 128), "f4")
        for number in range(sources):
            with h5py.File(run / f"{number:04}.h5", "w", libver="latest") as file:
                file["x"] = rows + number
        time.sleep(0.2)  # as after the end of a run, because a merge inspects recently changed files again
        sk.hdf5.merge(str(run / "*.h5"), paths[0], mode="virtual", exists="replace")
        with h5py.File(paths[1], "w") as file:
            file["x"] = np.repeat(np.arange(sources, dtype="f4"), 64)[:, None] + np.zeros(128, "f4")
    return [str(path) for path in paths]


def damaged(folder: Path, scale: float, *, is_checked: bool) -> list[str]:
    """Make a file of two datasets of 512 MiB; one chunk of a third is zeroed."""
    total = max(int((1 << 20) * scale), 1 << 15)
    path = folder / f"damaged-{total}-{is_checked}.h5"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        options = {"chunks": (1024, 128), "fletcher32": True} if is_checked else {}
        rows = np.random.default_rng(0).integers(0, 1 << 20, (1 << 15, 128), dtype="i4")
        with h5py.File(path, "w", libver="latest") as file:
            lost = file.create_dataset("lost", data=np.arange(1000), chunks=(100,), fletcher32=True)
            at = lost.id.get_chunk_info(3).byte_offset
            for dataset in ("x", "y"):
                made = file.create_dataset(dataset, (total, 128), "i4", **options)
                for start in range(0, total, len(rows)):
                    made[start : start + len(rows)] = rows[: total - start]
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(bytes(64))
    return [str(path)]

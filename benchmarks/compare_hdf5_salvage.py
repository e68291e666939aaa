"""Comparison of the salvage of a damaged HDF5 file of 1 GB with plain reading by h5py."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np

from benchmarks.comparison import Comparison
from shardkeep.jobs.salvage.hdf5.salvage import salvage_hdf5

_ROWS = 1 << 20
_BYTES = 512


def _damaged(folder: Path, name: str, **options: object) -> list[str]:
    """Make a file of two datasets of 512 MiB; one chunk, or one part of an object header, is zeroed."""
    path = folder / f"damaged-{name}.h5"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        rows = np.random.default_rng(0).integers(0, 1 << 20, (_ROWS // 8, _BYTES // 4), dtype="i4")
        with h5py.File(path, "w", libver="latest") as file:
            lost = file.create_dataset("lost", data=np.arange(1000), chunks=(100,), fletcher32=True)
            at = lost.id.get_chunk_info(3).byte_offset
            for dataset in ("x", "y"):
                made = file.create_dataset(dataset, (_ROWS, _BYTES // 4), "i4", **options)
                for start in range(0, _ROWS, len(rows)):
                    made[start : start + len(rows)] = rows
        with open(path, "r+b") as file:
            file.seek(at)
            file.write(bytes(64))
    return [str(path)]


def _plain(folder: Path) -> list[str]:
    return _damaged(folder, "plain")


def _checked(folder: Path) -> list[str]:
    return _damaged(folder, "fletcher32", chunks=(1024, _BYTES // 4), fletcher32=True)


def _salvage(paths: list[str]) -> int:
    output = Path(f"{paths[0]}.repaired")
    try:
        found = salvage_hdf5(paths[0], str(output), tick=lambda count: None)
        assert found.items("lost") == 100
    finally:
        output.unlink(missing_ok=True)
    return 2 * _ROWS


def _read(paths: list[str]) -> int:
    with h5py.File(paths[0]) as file:
        for name in ("x", "y"):
            for start in range(0, _ROWS, 8192):
                file[name][start : start + 8192]
    return 2 * _ROWS


COMPARISONS = [
    Comparison("salvage of 1 GiB, contiguous rows, beside reading it", _plain, _salvage, _read, 0.2),
    Comparison("salvage of 1 GiB, chunks with fletcher32, beside reading it", _checked, _salvage, _read, 0.2),
]

"""Small HDF5 files of all layouts, for tests that damage them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np

__all__ = ["LAYOUTS", "make"]

_ROWS = np.random.default_rng(5).integers(1, 1 << 30, (240, 6)).astype("i4")
_FLOATS = np.random.default_rng(6).normal(size=600)
_PAIRS = np.array(
    [(number, number / 3, f"row {number}".encode()) for number in range(90)],
    [("number", "<i8"), ("value", ">f4"), ("text", "S12")],
)


def _contiguous(file: h5py.File) -> None:
    file["rows"] = _ROWS
    file["one"] = 17
    file.create_dataset("compact/small", data=_FLOATS[:20], dcpl=_compact())
    file.create_dataset("never/written", (100,), "f8")
    file["empty"] = h5py.Empty("i4")


def _compact() -> h5py.h5p.PropDCID:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.COMPACT)
    return properties


def _chunks(file: h5py.File, limits: tuple[int | None, ...] | None = None, **options: Any) -> None:
    file.create_dataset("rows", data=_ROWS, chunks=(16, 6), maxshape=limits, **options)
    file.create_dataset("tiles", data=_ROWS, chunks=(50, 4), maxshape=limits, **options)
    file.create_dataset("floats", data=_FLOATS, chunks=(64,), maxshape=limits and limits[:1], **options)
    some = file.create_dataset("deep/er/some", (240, 6), "i4", chunks=(16, 6), maxshape=limits, **options)
    some[64:128] = _ROWS[64:128]


def _many_chunks(file: h5py.File) -> None:
    file.create_dataset("many", data=np.arange(3000), chunks=(10,), maxshape=(None,))
    _chunks(file)


def _single(file: h5py.File) -> None:
    for name, options in {"plain": {}, "packed": {"compression": "gzip"}}.items():
        file.create_dataset(f"a/{name}", data=_ROWS, chunks=_ROWS.shape, fletcher32=True, **options)
    _chunks(file, compression="gzip", shuffle=True)


def _variable(file: h5py.File) -> None:
    words = [f"the word {number} " * (number % 5) for number in range(150)]
    file["words"] = words
    file.create_dataset("packed", data=words, chunks=(20,), compression="gzip")
    ragged = file.create_dataset("ragged", (40,), h5py.vlen_dtype(np.int16), chunks=(10,))
    ragged[:] = [np.arange(number % 7, dtype="i2") for number in range(40)]
    file["word"] = "a text"


def _compounds(file: h5py.File) -> None:
    file.create_dataset("pairs", data=_PAIRS, chunks=(20,), compression="gzip")
    file["plain"] = _PAIRS
    file["color"] = np.arange(20) % 2 == 1
    file["kind"] = np.array([0, 1, 1], h5py.enum_dtype({"red": 0, "blue": 1}))
    file["text"] = np.array([b"ab", b"c"], "S5")
    file["named"] = np.dtype("<f4")
    file.create_dataset("of/named", data=_FLOATS[:50], dtype=file["named"])


def _groups(file: h5py.File) -> None:
    for number in range(40):
        file.create_dataset(f"many/d{number}", data=_FLOATS[number : number + 8], dcpl=_compact())
    for number in range(5):
        file[f"few/g{number}/x"] = _ROWS[number]
    file["soft"] = h5py.SoftLink("/many/d3")
    file["outside"] = h5py.ExternalLink("nowhere.h5", "x")
    file["again"] = file["few/g1"]


def _attributes(file: h5py.File) -> None:
    _chunks(file, fletcher32=True)
    for number in range(12):
        file["rows"].attrs[f"note{number}"] = _FLOATS[:4]
    file["floats"].attrs["unit"] = "m"
    file["floats"].attrs["names"] = ["x", "y"]
    file["rows"].make_scale("axis")
    file["tiles"].dims[0].attach_scale(file["rows"])
    file["pointers"] = np.array([file["rows"].ref, file["deep"].ref], h5py.ref_dtype)


_Make = Callable[[h5py.File], None]
LAYOUTS: dict[str, tuple[str | tuple[str, str], dict[str, Any], _Make]] = {
    "contiguous": ("earliest", {}, _contiguous),
    "contiguous with checked metadata": ("latest", {}, _contiguous),
    "B-tree of version 1": ("earliest", {}, _many_chunks),
    "B-tree of version 1, gzip, superblock 2": (
        ("v108", "v108"),
        {},
        lambda file: _chunks(file, compression="gzip", shuffle=True),
    ),
    "fixed array": ("latest", {}, lambda file: _chunks(file, fletcher32=True)),
    "fixed array, lzf, user block": (
        "latest",
        {"userblock_size": 512},
        lambda file: _chunks(file, compression="lzf"),
    ),
    "extensible array": ("latest", {}, lambda file: _chunks(file, (None, 6), compression="gzip")),
    "many chunks": ("latest", {}, _many_chunks),
    "B-tree of version 2": ("latest", {}, lambda file: _chunks(file, (None, None), fletcher32=True)),
    "single chunk": ("latest", {}, _single),
    "variable length": ("latest", {}, _variable),
    "variable length, old": ("earliest", {}, _variable),
    "compounds": ("latest", {}, _compounds),
    "old groups": ("earliest", {}, _groups),
    "dense groups": ("latest", {"track_order": True}, _groups),
    "attributes": ("latest", {}, _attributes),
}


def make(layout: str, path: Path) -> Path:
    """Make a file."""
    libver, options, fill = LAYOUTS[layout]
    with h5py.File(path, "w", libver=libver, **options) as file:
        fill(file)
    return path

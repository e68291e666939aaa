"""HDF5 files that are whole, with types, names and filters that h5py cannot read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
from h5py import h5a, h5d, h5p, h5s, h5t

__all__ = ["KINDS", "write_filtered", "write_typed"]


def _opaque() -> h5t.TypeID:
    kind = h5t.create(h5t.OPAQUE, 4)
    kind.set_tag(b"a tag")
    return kind


def _compound(member: h5t.TypeID, name: bytes = b"m") -> h5t.TypeID:
    kind = h5t.create(h5t.COMPOUND, 4 + member.get_size())
    kind.insert(b"i", 0, h5t.STD_I32LE)
    kind.insert(name, 4, member)
    return kind


def _three_bytes() -> h5t.TypeID:
    kind = h5t.STD_I32LE.copy()
    kind.set_precision(24)
    kind.set_size(3)
    return kind


KINDS: dict[str, Callable[[], h5t.TypeID]] = {
    "time": lambda: h5t.UNIX_D32LE,
    "bitfield": lambda: h5t.STD_B8BE,
    "opaque": _opaque,
    "compound of time": lambda: _compound(h5t.UNIX_D32LE),
    "compound of bitfield": lambda: _compound(h5t.STD_B8BE),
    "compound with a name in Latin-1": lambda: _compound(h5t.STD_I8LE, b"\xe9t\xe9"),
    "array of time": lambda: h5t.array_create(h5t.UNIX_D64LE, (3,)),
    "variable length of time": lambda: h5t.vlen_create(h5t.UNIX_D32LE),
    "integer of 3 bytes": _three_bytes,
}
"""Types that HDF5 stores and h5py does not read."""


def write_typed(path: Path, kind: h5t.TypeID, *, attribute: bool = False) -> None:
    """Write values of a type into the dataset "x", or the attribute "a" of "fine"."""
    with h5py.File(path, "w") as file:
        file["fine"] = [1, 2]
        space = h5s.create_simple((4,))
        # Pointers of variable length are none here.
        fill = 0 if kind.detect_class(h5t.VLEN) else 7
        values = np.full(4 * kind.get_size(), fill, "u1").view(f"V{kind.get_size()}")
        if attribute:
            h5a.create(file["fine"].id, b"a", kind, space).write(values, kind)
        else:
            h5d.create(file.id, b"x", kind, space).write(h5s.ALL, h5s.ALL, values, kind)


def write_filtered(path: Path, code: int, *, skipped: bool = False) -> None:
    """Write chunks of a filter that is not installed into "x"; `skipped` marks them as not filtered."""
    with h5py.File(path, "w") as file:
        file["fine"] = [1, 2]
        properties = h5p.create(h5p.DATASET_CREATE)
        properties.set_chunk((16,))
        properties.set_filter(code, h5py.h5z.FLAG_OPTIONAL, ())
        item = h5d.create(file.id, b"x", h5t.STD_I32LE, h5s.create_simple((64,)), properties)
        for start in range(0, 64, 16):
            item.write_direct_chunk((start,), np.arange(16, dtype="i4").tobytes(), int(skipped))

"""Types that other programs write, with rows whose bytes a conversion to NumPy's type and back may change."""

from typing import Any

import h5py
import numpy as np

_T = h5py.h5t


def text(size: int, padding: int = _T.STR_NULLTERM, charset: int = _T.CSET_ASCII) -> h5py.h5t.TypeID:
    """Return a type of fixed text."""
    kind = _T.C_S1.copy()
    kind.set_size(size)
    kind.set_strpad(padding)
    kind.set_cset(charset)
    return kind


def _compound(size: int, **members: tuple[int, h5py.h5t.TypeID]) -> h5py.h5t.TypeID:
    kind = _T.create(_T.COMPOUND, size)
    for name, (offset, member) in members.items():
        kind.insert(name.encode(), offset, member)
    return kind


def _bits() -> h5py.h5t.TypeID:
    kind = _T.STD_I16LE.copy()
    kind.set_precision(12)
    return kind


def _bfloat16() -> h5py.h5t.TypeID:
    kind = _T.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_precision(16)
    kind.set_ebias(127)
    return kind


def _rows(*rows: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(b"".join(rows), np.dtype((np.void, len(rows[0]))))


TYPES: dict[str, tuple[h5py.h5t.TypeID, np.ndarray[Any, Any]]] = {
    "ends at a NUL": (text(7), _rows(b"chopper", b"ab\0\0\0\0\0", b"ab\0xyz\0")),
    "padded with spaces": (text(7, _T.STR_SPACEPAD), _rows(b"chopper", b"ab     ", b"ab \0c  ")),
    "UTF-8": (text(3, charset=_T.CSET_UTF8), _rows("aé".encode(), b"ab\0", b"abc")),
    "compound": (
        _compound(9, t=(0, text(5)), n=(5, _T.STD_I32BE)),
        _rows(b"abcde\0\0\0\1", b"ab\0zz\0\0\0\2", b"\0\0\0\0\0\0\0\0\3"),
    ),
    "array": (_T.array_create(text(3), (2,)), _rows(b"abcdef", b"a\0\0b\0\0", b"abc\0\0\0")),
    "array of arrays": (
        _T.array_create(_T.array_create(_T.STD_I16BE, (2,)), (3,)),
        _rows(b"abcdefghijkl", b"ABCDEFGHIJKL", bytes(12)),
    ),
    "array in a compound": (
        _compound(8, a=(0, _T.array_create(text(3), (2,))), b=(6, _T.STD_I16LE)),
        _rows(b"abcdef\1\2", b"a\0\0b\0\0xx", b"abc\0\0\0yy"),
    ),
    "bit field": (_T.STD_B32BE, _rows(b"abcd", b"\0\0\0\1", b"\xff\xff\xff\xff")),
    "12 bits": (_bits(), _rows(b"\4\1", b"\2\0", b"\0\0")),
    "bfloat16": (_bfloat16(), _rows(b"\x80\x3f", b"\0\0", b"\1\x40")),
}


def create_exactly(
    file: h5py.Group, name: str, kind: h5py.h5t.TypeID, rows: np.ndarray[Any, Any], **options: Any
) -> h5py.Dataset:
    """Create a dataset of a type with these bytes."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    limits = None
    if options.get("chunks"):
        properties.set_chunk(options["chunks"])
        limits = (h5py.h5s.UNLIMITED,) * rows.ndim
    if options.get("gzip"):
        properties.set_deflate(1)
    space = h5py.h5s.create_simple(rows.shape, limits)
    dataset = h5py.h5d.create(file.id, name.encode(), kind, space, properties)
    dataset.write(h5py.h5s.ALL, h5py.h5s.ALL, rows, kind)
    return h5py.Dataset(dataset)


def stored(item: h5py.Dataset | h5py.h5a.AttrID) -> tuple[h5py.h5t.TypeID, bytes]:
    """Return type and bytes of a dataset or an attribute."""
    kind = item.id.get_type() if isinstance(item, h5py.Dataset) else item.get_type()
    found = np.empty(item.shape, np.dtype((np.void, kind.get_size())))
    if isinstance(item, h5py.Dataset):
        item.id.read(h5py.h5s.ALL, h5py.h5s.ALL, found, kind)
    else:
        item.read(found, kind)
    return kind, found.tobytes()

"""Sources that are built like one that was seen before, looked at without HDF5.

The Rust half reads shapes and addresses; of types, filters, fill values and attributes it gives the bytes,
the *form* of an object. What an object of a new form has is found out through HDF5, and holds for all others
of that form. A file that has anything else, or that is not as it should be, is looked at through HDF5, which
says what is wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import h5py
import numpy as np

from shardkeep._core import hdf5_inspect
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.locking.mode import locking_mode
from shardkeep.hdf5.segments.commit_record import CommitRecord, DatasetRecord, parse_record
from shardkeep.hdf5.sources.inspection import DatasetLook, Found, Looker, SourceLook
from shardkeep.hdf5.storage.chunk_table import ChunkTable

__all__ = ["look_at_all"]

_AT_ONCE = 256


def look_at_all(looker: Looker, paths: Sequence[str], held: set[str]) -> Iterator[SourceLook]:
    """Look at sources, in their order.

    Parameters
    ----------
    looker : Looker
    paths : sequence of str
    held : set of str
        Those in which no collector changes anything meanwhile.

    Raises
    ------
    NotFoundError, LockError, BudgetError, TruncatedFileError, FormatError, CorruptDataError, SchemaError
        As `Looker.look`.
    """
    forms = _Forms(looker)
    for first in range(0, len(paths), _AT_ONCE):
        some = paths[first : first + _AT_ONCE]
        for path, native in zip(some, _natively(some, rows=looker.rows), strict=True):
            look = None if native is None else forms.look(path, native, held=path in held)
            if look is None:
                look = looker.look(path, held=path in held)
                if native is not None:
                    forms.learn(native, look)
            yield look


# Version of the file, text of the commit, (name, form, dataset) of each object; as `hdf5_inspect` gives it.
_Native = tuple[tuple[int, int, int, int], bytes | None, list[tuple[bytes, bytes, Any]]]


def _natively(paths: Sequence[str], *, rows: bool) -> Sequence[_Native | None]:
    if locking_mode().effect == "off":
        return [None] * len(paths)  # nothing tells whether somebody writes them
    written = _written_here()
    looks: list[_Native | None] = hdf5_inspect(list(paths), lock=True, rows=rows)
    return [None if one is None or one[0][:2] in written else one for one in looks]


def _written_here() -> set[tuple[int, int]]:
    """Return device and inode of files that HDF5 of this process may not have brought to the disk."""
    found = set()
    for file in h5py.h5f.get_obj_ids(h5py.h5f.OBJ_ALL, h5py.h5f.OBJ_FILE):
        with contextlib.suppress(OSError, RuntimeError, ValueError):
            if file.get_intent() & h5py.h5f.ACC_RDWR:
                status = os.stat(file.name)
                found.add((status.st_dev, status.st_ino))
    return found


class _Forms:
    """What objects have, by their form."""

    def __init__(self, looker: Looker) -> None:
        self._looker = looker
        self._datasets: dict[tuple[bytes, bytes | None], DatasetLook] = {}
        self._groups: dict[bytes, Found] = {}

    def look(self, path: str, native: _Native, *, held: bool) -> SourceLook | None:
        """Return what a file has; None if there is a form in it that is new, or anything wrong."""
        version, commit, objects = native
        record = None if commit is None else parse_record(commit.rstrip(b"\0"), path)
        datasets: dict[str, DatasetLook] = {}
        groups: dict[str, Found] = {}
        for name, form, found in objects:
            text = name.decode("utf-8", "surrogateescape")
            if found is None:
                attributes = self._groups.get(form)
                if attributes is None:
                    return None
                groups[text] = attributes
                continue
            known = self._datasets.get(_key(form, found))
            if known is None:
                return None
            promised = None if record is None else record.datasets.get(text)
            look = self._dataset(known, text, found, promised)
            if look is None:
                return None
            datasets[text] = look
        if record is not None:
            if not _is_as_promised(record, datasets):
                return None
            if len(datasets) == len(record.datasets) and len(groups) == 1:
                datasets = {name: datasets[name] for name in record.datasets}
        return SourceLook(path, FileVersion(*version, held), record, datasets, groups)

    def learn(self, native: _Native, look: SourceLook) -> None:
        """Keep what HDF5 has told about a file."""
        version, _, objects = native
        if version != look.version[:4]:
            return
        for name, form, found in objects:
            text = name.decode("utf-8", "surrogateescape")
            if found is None:
                if text in look.groups:
                    self._groups[form] = look.groups[text]
                continue
            known = look.datasets.get(text)
            # What is put, and what points to somewhere else, is not known by its bytes.
            if known is None or known.put or (isinstance(found[2], bytes) and known.dtype.hasobject):
                continue
            promised = None if look.record is None else look.record.datasets.get(text)
            again = self._dataset(known, text, found, promised)
            if again is not None and _is_same(again, known):
                self._datasets[_key(form, found)] = known

    def _dataset(
        self, known: DatasetLook, name: str, found: Any, promised: DatasetRecord | None
    ) -> DatasetLook | None:
        shape, stored_bytes, place, crc = found
        if promised is not None and promised.rows != (shape[0] if shape else 0):
            return None
        layout = known.layout
        crc32c = None if promised is None else promised.crc32c
        if shape and self._looker.rows:
            if not self._looker.is_as_in_memory(layout, known.dtype):
                return None
            crc32c = f"{crc or 0:08x}"
            if promised is not None and crc32c != promised.crc32c:
                return None
        chunks = offset = None
        if shape and type(place) is int:
            offset = place
            chunks = _contiguous(place, shape, known.dtype.itemsize)
        elif type(place) is tuple:
            chunks = ChunkTable(*place)
        return DatasetLook(
            name,
            known.dtype,
            shape,
            layout,
            known.attributes,
            None if shape else known.value,
            False,
            stored_bytes,
            chunks if self._looker.addresses and layout.fixed_size else None,
            crc32c,
            None if promised is None else promised.chunks_crc32c,
            offset,
        )


def _key(form: bytes, found: Any) -> tuple[bytes, bytes | None]:
    value = found[2]
    if not isinstance(value, bytes):
        return form, None
    # A digest, so that values that are different in every file are not all kept.
    return form, value if len(value) <= 32 else hashlib.blake2b(value, digest_size=32).digest() + b"digest"


def _contiguous(address: int, shape: tuple[int, ...], item_bytes: int) -> ChunkTable | None:
    size = item_bytes * int(np.prod(shape, dtype=object))
    if size == 0:
        return None
    offsets, masks = np.zeros((1, len(shape)), np.int64), np.zeros(1, np.uint32)
    return ChunkTable(offsets, masks, np.array([address]), np.array([size]))


def _is_as_promised(record: CommitRecord, datasets: dict[str, DatasetLook]) -> bool:
    return all(name in datasets for name in record.objects) and not any(
        name in datasets for name in record.puts
    )


def _is_same(one: DatasetLook, two: DatasetLook) -> bool:
    if (one.shape, one.stored_bytes, one.offset_bytes, one.crc32c) != (
        two.shape,
        two.stored_bytes,
        two.offset_bytes,
        two.crc32c,
    ):
        return False
    if one.chunks is None or two.chunks is None:
        return one.chunks is two.chunks
    return (
        np.array_equal(one.chunks.offsets, two.chunks.offsets)
        and np.array_equal(one.chunks.masks, two.chunks.masks)
        and np.array_equal(one.chunks.addresses, two.chunks.addresses)
        and np.array_equal(one.chunks.sizes, two.chunks.sizes)
    )

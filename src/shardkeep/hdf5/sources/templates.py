"""Inspection of many sources, without HDF5 where a file is built like one that was inspected before.

The Rust half reads shapes and addresses; of types, filters, fill values and attributes it returns the bytes,
the *form* of an object. An object of a new form is inspected through HDF5, and the result is the template for
all others of that form. A file with any other content, or with a mistake, is inspected through HDF5, whose
error says what is wrong.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shardkeep._core import hdf5_inspect
from shardkeep.errors import ShardkeepError
from shardkeep.hdf5.locking.damage import files_written_here
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.locking.mode import locking_mode
from shardkeep.hdf5.segments.commit_record import CommitRecord, DatasetRecord, parse_record
from shardkeep.hdf5.sources.inspection import DatasetInfo, FoundAttributes, Inspector, SourceInfo
from shardkeep.hdf5.storage.chunk_table import ChunkTable
from shardkeep.hdf5.storage.names import decode_name

__all__ = ["Templates", "inspect_all"]

_AT_ONCE = 256
_READ_AT_ONCE_BYTES = 64 << 20  # if their rows are read, too
_MOST_LEARNED = 64


def inspect_all(
    inspector: Inspector, paths: Sequence[str], held: set[str], sizes: Sequence[int] = ()
) -> Iterator[SourceInfo]:
    """Inspect sources, in their order; errors as `Inspector.inspect`.

    Parameters
    ----------
    inspector : Inspector
    paths : sequence of str
    held : set of str
        Files of collectors that a view keeps as they are.
    sizes : sequence of int, optional
        Size of each source in bytes. Many small ones are inspected at once.
    """
    templates = Templates(inspector)
    for first, last in _groups(sizes if sizes and inspector.rows else [0] * len(paths)):
        some = paths[first:last]
        for path, native in zip(some, _natively(some, rows=inspector.rows), strict=True):
            yield templates.inspect(path, native, held=path in held)


def _groups(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = size_bytes = 0
    for number, size in enumerate(sizes):
        if number - first == _AT_ONCE or (number > first and size_bytes + size > _READ_AT_ONCE_BYTES):
            yield first, number
            first, size_bytes = number, 0
        size_bytes += size
    yield first, len(sizes)


# Version of the file, text of the commit, (name, form, dataset) of each object; as `hdf5_inspect` gives it.
_Native = tuple[tuple[int, int, int, int], bytes | None, list[tuple[bytes, bytes, Any]]]


def _natively(paths: Sequence[str], *, rows: bool) -> Sequence[_Native | None]:
    if locking_mode().effect == "off":
        return [None] * len(paths)  # without locks another process may be writing them
    written = files_written_here()
    found: list[_Native | None] = hdf5_inspect(list(paths), lock=True, rows=rows)
    return [None if one is None or one[0][:2] in written else one for one in found]


class Templates:
    """Inspected objects by their form."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._datasets: dict[tuple[bytes, bytes | None], DatasetInfo] = {}
        self._groups: dict[bytes, FoundAttributes] = {}
        self._left = _MOST_LEARNED

    def inspect(self, path: str, native: _Native | None, *, held: bool) -> SourceInfo:
        """Return the contents of a file, through HDF5 if need be; errors as `Inspector.inspect`."""
        info = None if native is None else self._apply(path, native, held=held)
        if info is None:
            info = self._inspector.inspect(path, held=held)
            if native is not None:
                self._learn(native, info)
        return info

    def known(self, path: str) -> SourceInfo | None:
        """Return the contents of a file; None if they are not known without HDF5, or anything is wrong."""
        (native,) = _natively([path], rows=self._inspector.rows)
        try:
            return None if native is None else self._apply(path, native, held=False)
        except ShardkeepError:
            return None

    def learn(self, path: str) -> None:
        """Keep the objects of an undamaged file as templates; files that all differ need none."""
        (native,) = _natively([path], rows=self._inspector.rows) if self._left else (None,)
        if native is not None:
            self._left -= 1
            self._learn(native, self._inspector.inspect(path))

    def _apply(self, path: str, native: _Native, *, held: bool) -> SourceInfo | None:
        """Return the contents of a file; None if a form in it is new, or anything is wrong."""
        version, commit, objects = native
        record = None if commit is None else parse_record(commit.rstrip(b"\0"), path)
        datasets: dict[str, DatasetInfo] = {}
        groups: dict[str, FoundAttributes] = {}
        for name, form, found in objects:
            text = sys.intern(decode_name(name))
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
            info = self._dataset(known, text, found, promised)
            if info is None:
                return None
            datasets[text] = info
        if record is not None:
            if not _is_as_promised(record, datasets):
                return None
            if len(datasets) == len(record.datasets) and len(groups) == 1:
                datasets = {name: datasets[name] for name in record.datasets}
        return SourceInfo(path, FileVersion(*version, held), record, datasets, groups)

    def _learn(self, native: _Native, info: SourceInfo) -> None:
        """Keep the objects of a file that was inspected through HDF5 as templates."""
        version, _, objects = native
        if version != info.version[:4]:
            return
        for name, form, found in objects:
            text = decode_name(name)
            if found is None:
                if text in info.groups:
                    self._groups[form] = info.groups[text]
                continue
            known = info.datasets.get(text)
            # Values that were put, and pointers to a heap, are not determined by these bytes.
            if known is None or known.put or (isinstance(found[2], bytes) and known.dtype.hasobject):
                continue
            promised = None if info.record is None else info.record.datasets.get(text)
            again = self._dataset(known, text, found, promised)
            if again is not None and _is_same(again, known):
                self._datasets[_key(form, found)] = known

    def _dataset(
        self, known: DatasetInfo, name: str, found: Any, promised: DatasetRecord | None
    ) -> DatasetInfo | None:
        shape, stored_bytes, place, crc = found
        if promised is not None and promised.rows != (shape[0] if shape else 0):
            return None
        layout = known.layout
        crc32c = None if promised is None else promised.crc32c
        if shape and self._inspector.rows:
            if not self._inspector.is_as_in_memory(layout, known.dtype):
                return None
            found_crc32c = f"{crc or 0:08x}"
            if promised is not None and found_crc32c != promised.crc32c:
                return None
            crc32c = crc32c or found_crc32c
        offset = place if shape and type(place) is int else None
        keeps = type(place) is tuple and self._inspector.addresses and layout.fixed_size
        return DatasetInfo(
            name,
            known.dtype,
            shape,
            layout,
            known.attributes,
            None if shape else known.value,
            None if shape else known.exact,
            False,
            stored_bytes,
            ChunkTable(*place) if keeps else None,
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


def _is_as_promised(record: CommitRecord, datasets: dict[str, DatasetInfo]) -> bool:
    return all(name in datasets for name in record.objects) and not any(
        name in datasets for name in record.puts
    )


def _is_same(one: DatasetInfo, two: DatasetInfo) -> bool:
    """Return whether two inspections of a dataset found the same shape, addresses and hash."""
    numbers = [(info.shape, info.stored_bytes, info.offset_bytes, info.crc32c) for info in (one, two)]
    if numbers[0] != numbers[1]:
        return False
    if one.chunks is None or two.chunks is None:
        return one.chunks is two.chunks
    columns = ("offsets", "masks", "addresses", "sizes")
    return all(np.array_equal(getattr(one.chunks, name), getattr(two.chunks, name)) for name in columns)

"""Inspection of a source through HDF5: types, layouts, attributes and addresses of all its objects.

A run may have ten thousand files, so each is inspected with few calls of the low-level interface: the
high-level objects of h5py cost more than to open a file. Equal types and layouts are described once.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import h5py
import numpy as np
from numpy.lib.recfunctions import repack_fields

from shardkeep.errors import CorruptDataError, SchemaError
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.read_errors import first_line, is_of_hdf5, reading
from shardkeep.hdf5.segments.commit_record import COMMIT, CommitRecord, DatasetRecord, parse_record
from shardkeep.hdf5.sources.links import CreationOrder, LinkInfo, Names, type_link, walk_links
from shardkeep.hdf5.sources.receipts import RECEIPTS
from shardkeep.hdf5.sources.source import check_value, not_as_committed, open_id, rows_crc
from shardkeep.hdf5.storage.attributes import Attributes, read_attributes
from shardkeep.hdf5.storage.byte_order import read_value
from shardkeep.hdf5.storage.chunk_table import ChunkTable, contiguous_offset, read_chunk_table
from shardkeep.hdf5.storage.content_hash import content_crc
from shardkeep.hdf5.storage.dtypes import (
    flat_dtype,
    has_references,
    obstacle_to_reading,
    obstacle_to_values,
)
from shardkeep.hdf5.storage.exact_values import ExactValue
from shardkeep.hdf5.storage.layout import Layout, layout_of
from shardkeep.hdf5.storage.matlab import empty_shape
from shardkeep.hdf5.storage.names import OWN_ATTRIBUTES, PUT, RESERVED, decode_name, encode_name

__all__ = ["DatasetInfo", "FoundAttributes", "Inspector", "SourceInfo"]

_NO_ATTRIBUTES = Attributes()
_READ_AT_ONCE_BYTES = 4 * 1024 * 1024


class FoundAttributes(NamedTuple):
    """Attributes of one object, and the reason for each one that cannot be kept."""

    kept: Attributes
    unkept: dict[str, str]


_NOTHING = FoundAttributes(_NO_ATTRIBUTES, {})


class DatasetInfo(NamedTuple):
    """One dataset of one source.

    Attributes
    ----------
    shape : tuple of int or None
        None for a dataset of the null dataspace.
    value : object
        The value of a scalar or of a dataset that was written once; None for rows.
    exact : ExactValue or None
        The same, if its type in the file is not the one that HDF5 has for the dtype.
    put : bool
        Whether it was written once by a rank, so that it has no rows.
    stored_bytes : int
        Size in the file.
    chunks : ChunkTable or None
        Addresses of its chunks, if it has any and they can be copied from there.
    crc32c : str or None
        Hash of the rows: of their commit, or as they were read.
    chunks_crc32c : str or None
        Hash of the compressed chunks, of their commit.
    offset_bytes : int or None
        Offset of the first row in the file, if the rows are contiguous there.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...] | None
    layout: Layout
    attributes: FoundAttributes
    value: Any = None
    exact: ExactValue | None = None
    put: bool = False
    stored_bytes: int = 0
    chunks: ChunkTable | None = None
    crc32c: str | None = None
    chunks_crc32c: str | None = None
    offset_bytes: int | None = None

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """Shape of one row; None for a value without rows."""
        return self.shape[1:] if self.shape and not self.put else None

    @property
    def rows(self) -> int:
        """Number of rows."""
        return 0 if self.row_shape is None else (self.shape or (0,))[0]


@dataclass(frozen=True)
class SourceInfo:
    """One source: a sealed segment if it has a `record`, otherwise any HDF5 file.

    Attributes
    ----------
    groups : dict
        Attributes of every group and named type by name; that of the root is ``""``.
    links : dict
        Hard links, soft links and named types; a segment has none.
    orders : dict
        The order of creation in each group that keeps one; that of the root is ``""``.
    has_receipts : bool
        Whether it is a merged file with receipts.
    reserved : tuple of str
        Objects of the user with a name that is reserved for Shardkeep.
    """

    path: str
    version: FileVersion
    record: CommitRecord | None
    datasets: dict[str, DatasetInfo]
    groups: dict[str, FoundAttributes]
    links: dict[str, LinkInfo] = field(default_factory=dict)
    has_receipts: bool = False
    user_block_bytes: int = 0
    reserved: tuple[str, ...] = ()
    orders: dict[str, CreationOrder] = field(default_factory=dict)

    def rows_of(self, name: str) -> int:
        """Return the number of rows of a dataset; 0 if there is none."""
        one = self.datasets.get(name)
        return 0 if one is None else one.rows


@dataclass
class Inspector:
    """Inspection of many sources, one after the other.

    Attributes
    ----------
    addresses : bool
        Whether to read the addresses of chunks.
    rows : bool
        Whether to read and hash all rows; those of a segment must have the hash of their commit.
    """

    addresses: bool = False
    rows: bool = False
    _dtypes: dict[bytes, tuple[np.dtype[Any], bool]] = field(default_factory=dict)
    _layouts: dict[Layout, Layout] = field(default_factory=dict)

    def inspect(self, path: str, *, held: bool = False) -> SourceInfo:
        """Inspect one source, which is opened and closed; `held` if a view keeps a collector's file as it is.

        Raises
        ------
        NotFoundError, LockError, BudgetError, TruncatedFileError, FormatError, CorruptDataError
            As `shardkeep.hdf5.sources.source.open_source`; or rows are not those of their commit.
        SchemaError
            It has datasets that cannot be merged: virtual or external ones, references.
        """
        file = open_id(path)
        try:
            with reading(path):
                info = self._inspect(file, path, held)
        except BaseException:
            h5py.File(file).close()  # the error may still hold objects, which would keep the file open
            raise
        if h5py.h5f.get_obj_count(file, h5py.h5f.OBJ_ALL | h5py.h5f.OBJ_LOCAL) > 1:
            # Not always: it visits every open object of the process, and dropping the last name suffices.
            h5py.File(file).close()
        return info

    def is_plain(self, one: DatasetInfo) -> bool:
        """Return whether the bytes of the rows in the file are those of a NumPy array."""
        row_shape, chunks = one.row_shape, one.layout.chunks
        if one.layout.filters or row_shape is None or not self.is_as_in_memory(one.layout, one.dtype):
            return False
        if chunks is None:
            return one.offset_bytes is not None and 0 not in row_shape
        if one.chunks is None:
            return False
        return chunks[1:] == row_shape and one.chunks.rows_in_order(one.rows, chunks[0])

    def is_as_in_memory(self, layout: Layout, dtype: np.dtype[Any]) -> bool:
        """Return whether values have the same bytes in file and memory, without padding."""
        if not self._dtypes[layout.type_code][1] or dtype.itemsize == 0:
            return False
        return dtype.names is None or repack_fields(dtype, recurse=True).itemsize == dtype.itemsize

    def _inspect(self, file: h5py.h5f.FileID, path: str, held: bool) -> SourceInfo:
        # Of the open file: the path may name another one by now.
        version = FileVersion.of(os.fstat(file.get_vfd_handle()))._replace(may_grow=held)
        record = _read_record(file, path)
        found = walk_links(file) if record is None else _names_of(file, record)
        datasets: dict[str, DatasetInfo] = {}
        is_own = record is not None or found.has_own
        groups = {"": _attributes_of(file, h5py.File, path)}
        orders = {"": CreationOrder.of(h5py.Group(h5py.h5g.open(file, b"/")))}
        for name in found.objects:
            text = decode_name(name)
            with reading(path, text, "dataset"):
                item = h5py.h5o.open(file, name)
            if isinstance(item, h5py.h5g.GroupID):
                groups[text] = _attributes_of(item, h5py.Group, path)
                orders[text] = CreationOrder.of(h5py.Group(item))
            elif isinstance(item, h5py.h5d.DatasetID):
                promised = None if record is None else record.datasets.get(text)
                datasets[text] = self._dataset(item, text, path, promised, is_own=is_own)
                if record is not None and text in record.puts:
                    value = datasets[text].value, datasets[text].dtype
                    check_value(path, text, value, record.puts[text].crc32c)
            elif isinstance(item, h5py.h5t.TypeID):
                groups[text] = _attributes_of(item, h5py.Datatype, path)
                found.links[text] = type_link(item)
        for promise in record.objects if record is not None else ():
            if promise not in datasets:
                message = f"dataset {promise!r} of {path!r} is not there"
                raise CorruptDataError(f"{message}: restore the file from a copy", path=path)
        has_receipts = record is None and found.has_own and RECEIPTS not in found.reserved
        has_receipts = has_receipts and file.links.exists(RECEIPTS.encode())
        user_block = 0 if record is not None else file.get_create_plist().get_userblock()
        return SourceInfo(
            path,
            version,
            record,
            datasets,
            groups,
            found.links,
            has_receipts,
            user_block,
            found.reserved,
            {name: order for name, order in orders.items() if order is not None},
        )

    def _dataset(
        self, item: Any, name: str, path: str, promised: DatasetRecord | None, *, is_own: bool
    ) -> DatasetInfo:
        kind = item.get_type()
        code = kind.encode()
        known = self._dtypes.get(code)
        if known is None:
            known = self._dtypes[code] = _dtype_of(kind, name, path)
        dtype, same_in_memory = known
        properties = item.get_create_plist()
        space = item.get_space()
        shape = None if space.get_simple_extent_type() == h5py.h5s.NULL else tuple(space.shape)
        layout = layout_of(properties, dtype, code, space)
        layout = self._layouts.setdefault(layout, layout)
        _refuse_what_cannot_be_merged(properties, kind, name, path)
        found = _attributes_of(item, h5py.Dataset, path, is_own=is_own)
        attributes, put = _split_put(found) if is_own else (found, False)
        value = exact = None
        if empty_shape(item) is not None:
            shape = ()
        if not shape or put:
            value, exact = read_value(h5py.Dataset(item)), ExactValue.read(item, dtype)
        rows = bool(shape) and not put
        crc32c = None if promised is None else promised.crc32c
        if promised is not None and not put and promised.rows != (shape[0] if shape else 0):
            message = (
                f"{path!r} has {shape[0] if shape else 0} rows of {name!r}, its commit says {promised.rows}"
            )
            raise CorruptDataError(f"{message}: restore it from a copy", path=path)
        if rows and self.rows:
            crc32c = _crc_of(item, dtype, shape or (), same_in_memory and not layout.filters, name, path)
            if promised is not None and crc32c != promised.crc32c:
                raise not_as_committed(path, name)
        table = None
        if rows and self.addresses and layout.fixed_size and layout.chunks is not None:
            table = read_chunk_table(item)
        offset = contiguous_offset(item) if rows and properties.get_layout() == h5py.h5d.CONTIGUOUS else None
        return DatasetInfo(
            name=name,
            dtype=dtype,
            shape=shape,
            layout=layout,
            attributes=attributes,
            value=value,
            exact=exact,
            put=put,
            stored_bytes=item.get_storage_size(),
            chunks=table,
            crc32c=crc32c,
            chunks_crc32c=None if promised is None else promised.chunks_crc32c,
            offset_bytes=offset,
        )


def _read_record(file: h5py.h5f.FileID, path: str) -> CommitRecord | None:
    # First, since a failed opening of a dataset costs as much as that of a file.
    if not file.links.exists(COMMIT.encode()):
        return None
    item = h5py.h5d.open(file, COMMIT.encode())
    kind = item.get_type()
    if kind.get_class() != h5py.h5t.STRING or kind.is_variable_str():
        return parse_record(b"", path)
    text = np.empty((), f"S{kind.get_size()}")
    with reading(path, COMMIT):
        item.read(h5py.h5s.ALL, h5py.h5s.ALL, text, kind)
    return parse_record(text.tobytes().rstrip(b"\0"), path)


def _names_of(file: h5py.h5f.FileID, record: CommitRecord) -> Names:
    names = list(record.datasets)
    if any("/" in name for name in names) or file.get_num_objs() != len(names) + 1:
        return walk_links(file)  # groups, or values that were written once
    return Names([encode_name(name) for name in names], {})


def _attributes_of(
    item: Any, wrapper: Callable[[Any], Any], path: str, *, is_own: bool = False
) -> FoundAttributes:
    """Return the attributes of an object; `is_own` if Shardkeep may have written some of them."""
    if h5py.h5a.get_num_attrs(item) == 0:
        return _NOTHING
    try:
        kept, unkept = read_attributes(wrapper(item))
    except UnicodeError as error:
        message = f"an object of {path!r} has an attribute whose name or text is not UTF-8 ({error})"
        raise SchemaError(f"{message}, which h5py cannot read: remove it", path=path) from None
    reserved = [] if is_own else [name for name in OWN_ATTRIBUTES if name in kept.values]
    unkept.update(dict.fromkeys(reserved, RESERVED))
    return FoundAttributes(kept.without(reserved), unkept)


def _split_put(found: FoundAttributes) -> tuple[FoundAttributes, bool]:
    if PUT not in found.kept.values:
        return found, False
    return FoundAttributes(found.kept.without((PUT,)), found.unkept), bool(np.all(found.kept.values[PUT][0]))


def _dtype_of(kind: Any, name: str, path: str) -> tuple[np.dtype[Any], bool]:
    try:
        dtype = flat_dtype(kind.dtype)
    except Exception as error:
        if not is_of_hdf5(error):
            raise
        message = f"dataset {name!r} of {path!r} has a type that cannot be read ({first_line(error)})"
        raise SchemaError(f"{message}: leave it out", path=path) from error
    obstacle = obstacle_to_values(kind) or obstacle_to_reading(kind)
    if obstacle is not None:
        raise SchemaError(f"dataset {name!r} of {path!r} {obstacle}: leave it out", path=path)
    same = not dtype.hasobject and bool(h5py.h5t.py_create(dtype, logical=True).equal(kind))
    return dtype, same


def _crc_of(
    item: Any, dtype: np.dtype[Any], shape: tuple[int, ...], plain: bool, name: str, path: str
) -> str:
    with reading(path, name):
        if plain and 0 < math.prod(shape) * dtype.itemsize <= _READ_AT_ONCE_BYTES:
            rows = np.empty(shape, dtype)
            item.read(h5py.h5s.ALL, h5py.h5s.ALL, rows, item.get_type())
            return f"{content_crc(rows):08x}"
        return f"{rows_crc(h5py.Dataset(item), 0, shape[0]):08x}"


def _refuse_what_cannot_be_merged(properties: Any, kind: h5py.h5t.TypeID, name: str, path: str) -> None:
    what = None
    if properties.get_layout() == h5py.h5d.VIRTUAL:
        what = "is virtual, so rows may be missing without a sign: merge its sources"
    elif properties.get_external_count():
        what = "keeps its rows in other files: copy it into an ordinary dataset first"
    elif has_references(kind):
        what = "holds references, which point nowhere in another file: leave it out"
    if what is not None:
        raise SchemaError(f"dataset {name!r} of {path!r} {what}", path=path)

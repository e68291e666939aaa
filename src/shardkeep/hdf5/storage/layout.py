"""Layout of a dataset in its file: type, chunks, filters, fill value and limits."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import SchemaError
from shardkeep.hdf5.storage.compression import FilterSpec, offer_filters
from shardkeep.hdf5.storage.dtypes import same_file_type

__all__ = [
    "Layout",
    "as_row_shape",
    "blocks_of",
    "check_row_size",
    "chunk_rows_of",
    "create_dataset",
    "layout_of",
    "read_layout",
    "write_rows",
]

_CHUNK_BYTES = 512 * 1024
_TEXT_CHUNK_ROWS = 4096
_BLOCK_BYTES = 4 << 20
_LONGEST_CHUNK_BYTES = (1 << 32) - 1
# Rows without values, as of shape (0,), take no bytes: HDF5 has no chunks of them.
_UNBOUNDED_ROWS = 1 << 40


@dataclass(frozen=True)
class Layout:
    """Type, chunks, filters, fill value and limits, all comparable after the file is closed.

    Attributes
    ----------
    type_code : bytes
        The file's datatype as H5Tencode writes it: byte order, padding, character set and all.
    chunks : tuple of int or None
    filters : tuple
        (code, flags, parameters) of each filter, in order.
    fill : bytes or None
        The value of chunks that were never written; None if h5py cannot read it.
    fixed_size : bool
        Whether no value has a variable length.
    inner_limits : tuple of int
        Largest length of each axis but the first, or `h5py.h5s.UNLIMITED`; 0 where an axis cannot grow. Empty
        if none can.
    properties : h5py.h5p.PropDCID or None
        The other properties that the dataset was created with, of fill values of any type and the order of
        attributes. Not compared, and lost in a pickle.
    """

    type_code: bytes
    chunks: tuple[int, ...] | None
    filters: tuple[FilterSpec, ...]
    fill: bytes | None
    fixed_size: bool
    inner_limits: tuple[int, ...] = ()
    properties: h5py.h5p.PropDCID | None = field(default=None, compare=False, repr=False)

    @functools.cached_property
    def kind(self) -> h5py.h5t.TypeID:
        """The type in the file."""
        return h5py.h5t.decode(self.type_code)

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "kind"} | {"properties": None}

    def obstacle_to_chunk_copy(self, source: Layout) -> str | None:
        """Return why stored chunks of `source` cannot be copied into this layout; None if they can."""
        if not self.fixed_size:
            return "has values of variable length"
        if not same_file_type(source.type_code, self.type_code):
            return "has another type in its file"
        if source.chunks != self.chunks:
            return f"has chunks of {source.chunks}, not {self.chunks}"
        if source.filters != self.filters:
            return "has other filters"
        if source.fill is None:
            return "has a fill value that h5py cannot read"
        if source.fill != self.fill:
            return "has another fill value"
        return None

    def converted(self, dtype: np.dtype[Any]) -> Layout:
        """Return the layout with the type of a dtype, and with the fill value if h5py can read it."""
        fill = self.fill
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if self.properties is not None:
            properties.set_attr_creation_order(self.properties.get_attr_creation_order())
        if fill:
            value = np.frombuffer(fill, self.kind.dtype).astype(dtype)
            fill = value.tobytes()
            if dtype.kind == "S" and self.properties is not None:
                # h5py 3.16 passes the address of fixed text as its value. HDF5 converts that of the source.
                properties = self.properties
            else:
                properties.set_fill_value(value)
        code = h5py.h5t.py_create(dtype, logical=True).encode()
        return replace(self, type_code=code, fill=fill, properties=properties)


def chunk_rows_of(dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> int:
    """Return the number of rows in a chunk: 512 KiB of rows, at least one."""
    values = math.prod(row_shape)
    if values == 0:
        return _UNBOUNDED_ROWS
    if dtype.hasobject:
        return max(1, _TEXT_CHUNK_ROWS // values)
    return max(1, _CHUNK_BYTES // max(1, dtype.itemsize * values))


def as_row_shape(row_shape: Any) -> tuple[int, ...]:
    """Return the shape of one row; raise `SchemaError` unless it is a tuple of whole numbers."""
    try:
        shape = tuple(operator.index(length) for length in row_shape)
    except TypeError:
        message = f"row_shape={row_shape!r} is not a shape: pass a tuple of whole numbers"
        raise SchemaError(message) from None
    if any(length < 0 for length in shape):
        raise SchemaError(f"row_shape={row_shape!r} has a negative length: pass the shape of one row")
    return shape


def check_row_size(name: str, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> None:
    """Raise a `SchemaError` for rows that are longer than a chunk of HDF5 can be."""
    row_bytes = dtype.itemsize * math.prod(row_shape)
    if row_bytes > _LONGEST_CHUNK_BYTES:
        message = f"dataset {name!r}: a row of {row_bytes} bytes is longer than the 4 GiB of an HDF5 chunk"
        raise SchemaError(f"{message}; divide it into several rows")


def read_layout(dataset: h5py.Dataset) -> Layout:
    """Return the layout of an open dataset."""
    return layout_of(dataset.id.get_create_plist(), dataset.dtype, dataset.id.get_type().encode())


def layout_of(
    properties: h5py.h5p.PropDCID,
    dtype: np.dtype[Any],
    type_code: bytes,
    space: h5py.h5s.SpaceID | None = None,
) -> Layout:
    """Return the layout of a dataset from the properties it was created with, and its dataspace."""
    filters = tuple(
        (int(code), int(flags), tuple(int(value) for value in values))
        for code, flags, values, _ in (properties.get_filter(i) for i in range(properties.get_nfilters()))
    )
    fixed_size = not dtype.hasobject
    fill: bytes | None = b""
    if fixed_size and properties.fill_value_defined() == h5py.h5d.FILL_VALUE_USER_DEFINED:
        fill = None
        if dtype.subdtype is None:
            value = np.zeros((1,), dtype)
            properties.get_fill_value(value)
            fill = value.tobytes()
    chunks = tuple(properties.get_chunk()) if properties.get_layout() == h5py.h5d.CHUNKED else None
    limits: tuple[int, ...] = ()
    if chunks is not None and space is not None:
        lengths = zip(space.get_simple_extent_dims(maxdims=True), space.shape, strict=True)
        limits = tuple(0 if limit == length else limit for limit, length in lengths)[1:]
    return Layout(type_code, chunks, filters, fill, fixed_size, limits if any(limits) else (), properties)


def create_dataset(file: h5py.Group, name: str, layout: Layout, shape: tuple[int, ...]) -> h5py.Dataset:
    """Create a dataset of this layout, with groups as needed; if it has chunks, its first axis may grow."""
    properties = properties_of(layout)
    limits: tuple[Any, ...] = shape
    if layout.chunks is not None:
        properties.set_chunk(layout.chunks)
        # A chunk may be wider than the rows, but not than the rows may become.
        limits = (h5py.h5s.UNLIMITED, *map(max, shape[1:], layout.chunks[1:]))
        limits = limits_of(layout, limits)
        # Compressed chunks are copied without their plugin, so a missing one raises no error here. But HDF5
        # sizes the header now and writes the filter's name into it later, if it knows the name by then:
        # a filter that is registered in between damages the header.
        offer_filters(code for code, _, _ in layout.filters)
        for code, flags, values in layout.filters:
            properties.set_filter(code, flags, values)
    kind = h5py.h5t.decode(layout.type_code)
    return create_object(file, name, kind, h5py.h5s.create_simple(shape, limits), properties)


def create_object(
    file: h5py.Group,
    name: str,
    kind: h5py.h5t.TypeID,
    space: h5py.h5s.SpaceID,
    properties: h5py.h5p.PropDCID,
) -> h5py.Dataset:
    """Create a dataset, with groups as needed."""
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    return h5py.Dataset(h5py.h5d.create(file.id, name.encode(), kind, space, properties, links))


def properties_of(layout: Layout) -> h5py.h5p.PropDCID:
    """Return properties for a dataset without chunks and filters; all others are those of the layout."""
    if layout.properties is None:
        return h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties = layout.properties.copy()
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.remove_filter(h5py.h5z.FILTER_ALL)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_DEFAULT)  # which depends on the chunks
    return properties


def limits_of(layout: Layout, least: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the limits of the axes of a dataset: those of the layout, and at least these."""
    unlimited = h5py.h5s.UNLIMITED
    inner = zip(layout.inner_limits or least[1:], least[1:], strict=True)
    return (least[0], *(limit if limit == unlimited else max(limit, low) for limit, low in inner))


def write_rows(
    dataset: h5py.Dataset, start: int, rows: np.ndarray[Any, Any], kind: h5py.h5t.TypeID | None = None
) -> None:
    """Write rows of the dataset's dtype from row `start` on, within its shape.

    ``dataset[…] = rows`` fails for rows of variable length that happen to be equally long. `kind` is the
    memory type, if it is not NumPy's.
    """
    if rows.size:
        space = dataset.id.get_space()
        shape = (len(rows), *space.shape[1:])
        if kind is None and rows.ndim > len(shape):  # elements of an array type
            kind = h5py.h5t.py_create(np.dtype((rows.dtype, rows.shape[len(shape) :])))
        space.select_hyperslab((start, *(0 for _ in shape[1:])), shape)
        dataset.id.write(h5py.h5s.create_simple(shape), space, np.ascontiguousarray(rows), kind)


def blocks_of(
    shape: tuple[int, ...], item_bytes: int, chunks: tuple[int, ...]
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Yield start and shape of blocks of at most about 4 MiB, each of whole chunks.

    The last axes are whole as far as a block may have them. So with chunks of one element, the elements of a
    block are adjacent in contiguous rows.

    Examples
    --------
    >>> list(blocks_of((2, 3), 1 << 20, (1, 1)))
    [((0, 0), (1, 3)), ((1, 0), (1, 3))]
    """
    step = list(chunks)
    for axis in reversed(range(len(shape))):
        others = item_bytes * math.prod(step) // step[axis]
        most = _BLOCK_BYTES // max(1, others)
        step[axis] = min(shape[axis], max(chunks[axis], most // chunks[axis] * chunks[axis])) or 1
        if step[axis] < shape[axis]:
            break
    for start in itertools.product(*(range(0, size, part) for size, part in zip(shape, step, strict=True))):
        ends = zip(start, step, shape, strict=True)
        yield start, tuple(min(size, end - first) for first, size, end in ends)

"""Layout of a virtual dataset: its shape, its type and its mappings, as arrays.

HDF5 needs tens of milliseconds to open a dataset of thousands of mappings, and h5py more to list them. So the
Rust half reads them from a file that is not being written (`shardkeep._core.hdf5_virtual_dataset`); forms
that it does not support are read through h5py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from shardkeep._core import hdf5_virtual_dataset, hdf5_virtual_datasets
from shardkeep.errors import SchemaError
from shardkeep.hdf5.journal.live_view import is_collected
from shardkeep.hdf5.locking.handles import descriptor_of
from shardkeep.hdf5.read_errors import is_of_hdf5
from shardkeep.hdf5.storage.names import decode_name, encode_name

__all__ = ["VirtualLayout", "find_virtual", "is_virtual", "read_virtual_layout"]

# About 3 ms through h5py; later objects are checked at their first use.
_MOST_OBJECTS = 64
# Header that H5Tencode writes before a datatype message.
_ENCODED_TYPE = b"\x03\x00"

_Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class VirtualLayout:
    """Shape, type and mappings of a virtual dataset, as stored in its file.

    Attributes
    ----------
    shape : tuple of int
    stored : h5py.h5t.TypeID
        Its type in the file.
    files, datasets : list of bytes
        Names of the sources, each source once.
    numbers : ndarray of int64, shape (mappings,)
        Source of each mapping.
    low, high : ndarray of int64, shape (mappings, dimensions)
        Box of each mapping in the virtual dataset; zeros where it is not a box.
    is_box : ndarray of bool, shape (mappings,)
        Whether the mapping fills a box.
    source_dimensions : ndarray of int64, shape (mappings,)
        Number of dimensions of the source; -1 if all of it is mapped, whatever its shape.
    source_low, source_high : ndarray of int64, shape (mappings, most dimensions)
        Box in the source; where it is not a box, `source_high` bounds the selection.
    is_source_box : ndarray of bool, shape (mappings,)
        Whether the selection in the source is a box.
    """

    shape: tuple[int, ...]
    stored: h5py.h5t.TypeID
    files: list[bytes]
    datasets: list[bytes]
    numbers: _Numbers
    low: _Numbers
    high: _Numbers
    is_box: npt.NDArray[np.bool_]
    source_dimensions: _Numbers
    source_low: _Numbers
    source_high: _Numbers
    is_source_box: npt.NDArray[np.bool_]


def is_virtual(layout: h5py.h5p.PropDCID) -> bool:
    """Return whether creation properties are those of a virtual dataset."""
    return bool(layout.get_layout() == h5py.h5d.VIRTUAL)


def find_virtual(file_id: h5py.h5f.FileID) -> list[str]:
    """Return the paths of the virtual datasets among the first 64 objects of a file."""
    fd = _quiet_descriptor(file_id)
    paths = None if fd is None else hdf5_virtual_datasets(fd, _MOST_OBJECTS)
    if paths is not None:
        return [decode_name(path) for path in paths]
    found: list[str] = []
    seen = 0

    def visit(name: bytes) -> bool | None:
        nonlocal seen
        seen += 1
        if seen > _MOST_OBJECTS:
            return True
        try:
            dataset = h5py.h5d.open(file_id, name)
        except Exception as error:
            if not is_of_hdf5(error):
                raise
            return None  # a group, a named type, or damaged, which is an error when it is read
        if is_virtual(dataset.get_create_plist()):
            found.append("/" + decode_name(name))
        return None

    h5py.h5o.visit(file_id, visit)
    return found


def _decoded(code: bytes) -> h5py.h5t.TypeID | None:
    """Decode the type of a dataset from its object header; None if HDF5 refuses it."""
    try:
        return h5py.h5t.decode(_ENCODED_TYPE + code)
    except Exception as error:
        if not is_of_hdf5(error):
            raise
        return None


def read_virtual_layout(
    file_id: h5py.h5f.FileID, file_path: str, path: str, oid: h5py.h5d.DatasetID | None = None
) -> VirtualLayout:
    """Return the layout of a virtual dataset.

    Parameters
    ----------
    file_id : h5py.h5f.FileID
    file_path : str
        Path of that file, for errors.
    path : str
        Path of the dataset.
    oid : h5py.h5d.DatasetID, optional
        Its identifier, if it is open.

    Raises
    ------
    SchemaError
        The number of its sources is unlimited (``%b``).
    """
    name = encode_name(path)
    fd = _quiet_descriptor(file_id)
    found = None if fd is None else hdf5_virtual_dataset(fd, name)
    stored = None if found is None else _decoded(found[1])
    if found is None or stored is None:
        return _through_h5py(h5py.h5d.open(file_id, name) if oid is None else oid, file_path, path)
    shape, _, files, datasets, numbers, low, high, dimensions, source_low, source_high = found
    boxes = np.ones(len(numbers), bool)
    return VirtualLayout(
        tuple(shape),
        stored,
        files,
        datasets,
        numbers,
        low.reshape(-1, len(shape)),
        high.reshape(-1, len(shape)),
        boxes,
        dimensions,
        _padded(source_low, dimensions),
        _padded(source_high, dimensions),
        boxes,
    )


def _quiet_descriptor(file_id: h5py.h5f.FileID) -> int | None:
    """Return the descriptor of a file whose bytes are those that HDF5 would read; None for others."""
    # A writer of this process shares its cache with all handles, whose intent is then not read-only. A
    # collector writes without HDF5.
    if file_id.get_intent() != h5py.h5f.ACC_RDONLY or is_collected(file_id):
        return None
    return descriptor_of(file_id)


def _through_h5py(oid: h5py.h5d.DatasetID, file_path: str, path: str) -> VirtualLayout:
    properties = oid.get_create_plist()
    shape = tuple(oid.shape)
    sources: dict[tuple[bytes, bytes], int] = {}
    numbers, boxes, source_boxes = [], [], []
    for index in range(properties.get_virtual_count()):
        names = [
            os.fsencode(properties.get_virtual_filename(index)),
            os.fsencode(properties.get_virtual_dsetname(index)),
        ]
        box = _box(properties.get_virtual_vspace(index), shape)
        if box == "open" or any(b"%b" in name.replace(b"%%", b"") for name in names):
            message = f"{path!r} of {file_path!r} has an unlimited number of sources (%b)"
            advice = "so a missing one cannot be noticed: open with check_sources=False"
            raise SchemaError(f"{message}, {advice}", path=file_path)
        file, dataset = (name.replace(b"%%", b"%") for name in names)
        numbers.append(sources.setdefault((file, dataset), len(sources)))
        boxes.append(box)
        space = properties.get_virtual_srcspace(index)
        source_box = None
        if space.get_select_type() != h5py.h5s.SEL_ALL:
            source_box = _box(space, ())
            if not isinstance(source_box, tuple):  # its bounds are enough for a check
                source_box = None, tuple(int(one) + 1 for one in space.get_select_bounds()[1])
        source_boxes.append(source_box)
    count = len(numbers)
    dimensions = np.array([-1 if one is None else len(one[1]) for one in source_boxes], np.int64)
    nothing = (0,) * len(shape)
    low, high = ([nothing if one is None else one[side] for one in boxes] for side in (0, 1))
    source_low, source_high = (
        [n for one in source_boxes if one is not None for n in one[side] or (0,) * len(one[1])]
        for side in (0, 1)
    )
    return VirtualLayout(
        shape,
        oid.get_type().copy(),
        [file for file, _ in sources],
        [dataset for _, dataset in sources],
        np.array(numbers, np.int64),
        np.array(low, np.int64).reshape(count, len(shape)),
        np.array(high, np.int64).reshape(count, len(shape)),
        np.array([one is not None for one in boxes], bool),
        dimensions,
        _padded(np.array(source_low, np.int64), dimensions),
        _padded(np.array(source_high, np.int64), dimensions),
        np.array([one is None or one[0] is not None for one in source_boxes], bool),
    )


def _padded(numbers: _Numbers, dimensions: _Numbers) -> _Numbers:
    """Return concatenated rows of unequal length as a table, padded with zeros."""
    width = int(dimensions.max(initial=0))
    table = np.zeros((len(dimensions), width), np.int64)
    table[np.arange(width) < dimensions[:, None]] = numbers
    return table


def _box(space: h5py.h5s.SpaceID, shape: Sequence[int]) -> Any:
    """Return (low, high) of a selection that is one box, "open" for one without an end, None for others."""
    kind = space.get_select_type()
    if kind == h5py.h5s.SEL_ALL:
        return (0,) * len(shape), tuple(shape)
    if kind != h5py.h5s.SEL_HYPERSLABS or not space.is_regular_hyperslab():
        return None
    start, stride, count, block = space.get_regular_hyperslab()
    unlimited = h5py.h5s.UNLIMITED
    if any(one in (unlimited, 2**64 - 1, 2**32 - 1, -1) for one in (*count, *block)):
        return "open"
    high = []
    for at, step, times, size in zip(start, stride, count, block, strict=True):
        if times > 1 and step != size:
            return None
        high.append(int(at) + int(times) * int(size))
    return tuple(int(at) for at in start), tuple(high)

"""Objects of a damaged file that HDF5 does not open, from the metadata that are left of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np

from shardkeep import _core
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.compression import offer_filters
from shardkeep.hdf5.storage.dtypes import has_parts_elsewhere, has_references
from shardkeep.hdf5.storage.names import decode_name, shown_name
from shardkeep.jobs.salvage.hdf5.attributes import OF_SCALES, write_attribute
from shardkeep.jobs.salvage.hdf5.global_heaps import GlobalHeaps
from shardkeep.jobs.salvage.hdf5.patched_file import PatchedFile

__all__ = ["Remains"]

_SYMBOL_TABLE = 0x11
# H5Tencode: the kind of the message, and the version of the encoding.
_ENCODED_TYPE = b"\x03\0"


class Remains:
    """Objects of a damaged file by offset."""

    def __init__(self, path: str, raw: PatchedFile) -> None:
        self.found: Any = _core.hdf5_salvage(path)
        self.objects = {one.offset: one for one in self.found.objects}
        self.heaps = GlobalHeaps(raw, self.found.base)
        self._raw = raw

    def root(self) -> Any:
        """Return the root group; None if it is lost, or only the last group that is left."""
        root = self.objects.get(self.found.root)
        is_root = root is not None and root.kind == "group" and self.found.root_source != "only candidate"
        return root if is_root else None

    @staticmethod
    def is_checked_group(group: Any) -> bool:
        """Return whether checksums cover the links of a group."""
        return bool(group.is_checked) and all(kind != _SYMBOL_TABLE for kind, *_ in group.messages)

    @staticmethod
    def is_checked_dataset(dataset: Any) -> bool:
        """Return whether checksums cover type, shape and the index of chunks."""
        return bool(dataset.is_checked) and dataset.dataset.index != "btree1"

    def create_dataset(self, parent: Any, name: bytes, item: Any) -> Any:
        """Create a dataset of the type, shape, chunks, filters and fill value of a damaged one.

        Raises
        ------
        ValueError
            One of them is lost, or the rows are in other files.
        """
        one = item.dataset
        if one is None:
            raise ValueError("its shape, type or layout is lost")
        if one.filters is None:
            raise ValueError("its filters are lost")
        if one.layout in ("virtual", "external"):
            raise ValueError("its rows are in other files, whose names are lost")
        kind = _type(one.datatype)
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if one.layout == "chunked":
            properties.set_chunk(one.chunk_shape)
            offer_filters(code for code, *_ in one.filters)
            for code, flags, _, values in one.filters:
                properties.set_filter(code, flags, tuple(values))
        elif one.layout == "compact":
            properties.set_layout(h5py.h5d.COMPACT)
        if one.fill_value is not None and not has_parts_elsewhere(kind):
            properties.set_fill_value(np.frombuffer(one.fill_value, kind.dtype, 1).reshape(()))
        return h5py.h5d.create(parent, name, kind, _space(one.shape, one.limits), properties)

    @staticmethod
    def create_type(parent: Any, name: bytes, item: Any) -> Any:
        """Create a named type."""
        message = next(data for kind, _, data in item.messages if kind == _ENCODED_TYPE[0])
        kind = _type(message)
        kind.commit(parent, name)
        return kind

    def copy_attributes(self, item: Any, target: Any) -> Iterator[tuple[str, str]]:
        """Copy the attributes of an object; yield as `shardkeep.jobs.salvage.hdf5.attributes`."""
        unchecked = []
        for name, datatype, shape, stored, is_checked in item.attributes:
            shown = shown_name(decode_name(name))
            if name in OF_SCALES or h5py.h5a.exists(target, name):
                continue
            try:
                elsewhere = self._copy_attribute(target, name, _type(datatype), shape, stored)
                if elsewhere or not is_checked:
                    unchecked.append(shown)
            except Exception as error:  # whatever h5py raises for a damaged type or value
                yield "lost", f"its attribute {shown} cannot be read ({first_line(error)})"
        if not item.attributes_are_whole:
            yield "lost", "some of its attributes"
        if unchecked:
            yield "unchecked", f"the values of its attributes {', '.join(unchecked)} have no checksum"

    def _copy_attribute(self, target: Any, name: bytes, kind: Any, shape: Any, stored: bytes) -> bool:
        elsewhere = has_parts_elsewhere(kind)
        if has_references(kind):
            raise ValueError("it refers to other objects")
        value = memory = None
        if shape is not None and elsewhere:
            value, memory = self.heaps.values(kind, stored, shape), h5py.h5t.py_create(kind.dtype)
        elif shape is not None:
            value, memory = np.frombuffer(stored, f"V{kind.get_size()}").reshape(shape), kind
        write_attribute(target, name, kind, _space(shape, shape), value, memory)
        return elsewhere


def _type(message: bytes) -> Any:
    return h5py.h5t.decode(_ENCODED_TYPE + message)


def _space(shape: tuple[int, ...] | None, limits: Any) -> Any:
    if shape is None:
        return h5py.h5s.create(h5py.h5s.NULL)
    if not shape:
        return h5py.h5s.create(h5py.h5s.SCALAR)
    return h5py.h5s.create_simple(
        shape, tuple(h5py.h5s.UNLIMITED if one is None else one for one in limits or shape)
    )

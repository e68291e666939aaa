"""Copies of attributes, as they are stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.dtypes import has_parts_elsewhere, has_references
from shardkeep.hdf5.storage.names import decode_name, shown_name

__all__ = [
    "OF_SCALES",
    "attach_scales",
    "copy_attributes",
    "referring",
    "stored_size",
    "write_attribute",
]

# Length, address of a global heap, and number of an object in it.
_POINTER_BYTES = 16
# Written by H5DSattach_scale, with references in both directions.
OF_SCALES = (b"DIMENSION_LIST", b"REFERENCE_LIST")


def stored_size(kind: Any) -> int:
    """Return the size of an element in the file; in memory, one of variable length has another size."""
    if isinstance(kind, h5py.h5t.TypeVlenID):
        return _POINTER_BYTES
    if isinstance(kind, h5py.h5t.TypeStringID) and kind.is_variable_str():
        return _POINTER_BYTES
    size = int(kind.get_size())
    if isinstance(kind, h5py.h5t.TypeCompoundID):
        members = [kind.get_member_type(number) for number in range(kind.get_nmembers())]
        return size + sum(stored_size(one) - int(one.get_size()) for one in members)
    if isinstance(kind, h5py.h5t.TypeArrayID):
        base = kind.get_super()
        return size // int(base.get_size()) * stored_size(base)
    return size


def copy_attributes(
    source: Any, target: Any, refer: Callable[[Any], h5py.h5r.Reference | None]
) -> Iterator[tuple[str, str]]:
    """Copy all attributes of an object; yield outcome and reason of those that are lost or unchecked.

    Parameters
    ----------
    source, target : DatasetID, GroupID or TypeID
    refer : callable
        Returns the reference to the copy of an object, or None without a copy.
    """
    try:
        count = h5py.h5a.get_num_attrs(source)
    except (OSError, RuntimeError) as error:
        yield "lost", f"its attributes cannot be read ({first_line(error)})"
        return
    unchecked = []
    for index in range(count):
        name = f"number {index}"
        try:
            attribute = h5py.h5a.open(source, index=index)
            code = attribute.name
            name = shown_name(decode_name(code))
            if code in OF_SCALES or h5py.h5a.exists(target, code):
                continue
            if _copy(attribute, code, target, refer):
                unchecked.append(name)
        except Exception as error:  # whatever h5py raises for a damaged type or value
            yield "lost", f"its attribute {name} cannot be read ({first_line(error)})"
    if unchecked:
        yield "unchecked", f"the values of its attributes {', '.join(unchecked)} have no checksum"


def _copy(attribute: Any, name: bytes, target: Any, refer: Any) -> bool:
    """Copy an attribute; return whether its values are elsewhere in the file."""
    kind, space = attribute.get_type().copy(), attribute.get_space()
    elsewhere = has_parts_elsewhere(kind)
    if space.get_simple_extent_type() == h5py.h5s.NULL:
        write_attribute(target, name, kind, space)
        return False
    if not elsewhere:
        memory = kind
        value = np.empty(space.shape, f"V{kind.get_size()}")
        attribute.read(value, kind)
    else:
        memory = h5py.h5t.py_create(attribute.dtype)
        value = np.empty(attribute.shape, attribute.dtype)
        attribute.read(value, memory)
        if has_references(kind):
            value = referring(value, refer)
    write_attribute(target, name, kind, space, value, memory)
    return elsewhere


def write_attribute(
    target: Any, name: bytes, kind: Any, space: Any, value: Any = None, memory: Any = None
) -> None:
    """Create an attribute, and write its value if it has one; of a write that fails nothing is left."""
    created = h5py.h5a.create(target, name, kind, space)
    try:
        if value is not None:
            created.write(value, memory)
    except BaseException:
        h5py.h5a.delete(target, name)
        raise


def attach_scales(source: Any, target: Any, copy_of: Callable[[Any], Any]) -> Iterator[tuple[str, str]]:
    """Attach the copies of its dimension scales to a dataset; yield as `copy_attributes`."""
    name = OF_SCALES[0]
    try:
        if not isinstance(source, h5py.h5d.DatasetID) or not h5py.h5a.exists(source, name):
            return
        attribute = h5py.h5a.open(source, name)
        axes = np.empty(attribute.shape, attribute.dtype)
        attribute.read(axes, h5py.h5t.py_create(attribute.dtype))
        for axis, references in enumerate(axes):
            for reference in references:
                copy = copy_of(reference) if reference else None
                if copy is None:
                    raise ValueError("it refers to an object that is lost")
                h5py.h5ds.attach_scale(target, copy, axis)
    except Exception as error:  # whatever h5py raises for damaged references
        yield "lost", f"its dimension scales cannot be attached ({first_line(error)})"


def referring(value: Any, refer: Any) -> Any:
    """Return references to the copies of the objects to which some references lead."""
    if h5py.check_ref_dtype(value.dtype) is not h5py.Reference:
        raise ValueError("references to regions, or in compounds, are not copied")
    found = np.empty(value.shape, value.dtype)
    for place in np.ndindex(value.shape):
        reference = refer(value[place])
        if reference is None:
            raise ValueError("it refers to an object that is lost")
        found[place] = reference
    return found

"""Attributes of datasets, groups and files: their values, how they are read, written and compared."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import h5py
import numpy as np
from numpy.lib.recfunctions import repack_fields

from shardkeep._core import crc32c
from shardkeep.errors import SchemaError
from shardkeep.hdf5.read_errors import first_line, is_of_hdf5
from shardkeep.hdf5.storage.byte_order import in_stored_order
from shardkeep.hdf5.storage.content_hash import value_crc
from shardkeep.hdf5.storage.dtypes import (
    flat_dtype,
    has_references,
    is_text,
    obstacle_to_reading,
    obstacle_to_values,
    same_dtype,
    vlen_base,
)
from shardkeep.hdf5.storage.exact_values import ExactValue, obstacle_to_text
from shardkeep.hdf5.storage.names import OWN_ATTRIBUTES, is_unicode
from shardkeep.hdf5.storage.rows import as_value

__all__ = [
    "Attributes",
    "as_attribute",
    "as_read",
    "attributes_crc",
    "read_attributes",
    "same_value",
]

# Dimension scales refer to other objects of their file; H5Ocopy breaks them too (hdf5#6200).
_SCALES = {"CLASS", "DIMENSION_LIST", "NAME", "REFERENCE_LIST"}
_SIMPLE_BYTES = 16 << 10


@dataclass(frozen=True)
class Attributes:
    """The attributes of one object: (value, dtype) by name, in the order of the object.

    `exact` has the values whose types in the file are not those that HDF5 has for the dtypes.
    """

    values: dict[str, tuple[Any, np.dtype[Any]]] = field(default_factory=dict)
    exact: dict[str, ExactValue] = field(default_factory=dict)

    def without(self, names: Collection[str]) -> Attributes:
        """Return all attributes but those with some names."""
        return Attributes(
            {name: one for name, one in self.values.items() if name not in names},
            {name: one for name, one in self.exact.items() if name not in names},
        )

    def joined(self, others: Attributes) -> Attributes:
        """Return these attributes, and after them the others with other names."""
        more = others.without(self.values)
        return Attributes({**self.values, **more.values}, {**self.exact, **more.exact})

    def write(self, target: h5py.Dataset | h5py.Group) -> None:
        """Create them on an object."""
        for name, (value, dtype) in self.values.items():
            exact = self.exact.get(name)
            if exact is None and isinstance(value, h5py.Empty):
                kind = h5py.h5t.py_create(dtype, logical=True)
                h5py.h5a.create(target.id, name.encode(), kind, h5py.h5s.create(h5py.h5s.NULL))
            elif exact is None:
                target.attrs.create(name, value, dtype=dtype)
            else:
                exact.write(h5py.h5a.create(target.id, name.encode(), exact.kind, exact.space))


def as_attribute(name: object, value: Any) -> tuple[Any, np.dtype[Any]]:
    """Return a value as HDF5 returns it after writing, and its dtype.

    Raises
    ------
    SchemaError
        HDF5 does not keep the name or the type of the value, or the name is reserved.
    """
    if not isinstance(name, str) or not name or "\0" in name or not is_unicode(name):
        raise SchemaError(f"{name!r} cannot be the name of an attribute: use Unicode text that is not empty")
    if name in OWN_ATTRIBUTES or name in _SCALES - {"CLASS", "NAME"}:
        raise SchemaError(f"the attribute name {name!r} is reserved: choose another name")
    plain = isinstance(value, h5py.Empty) or (
        isinstance(value, np.ndarray) and vlen_base(value.dtype) is not None
    )
    data = value if plain else as_value(f"attribute {name!r}", value)
    if not plain and _is_simple(data):
        return as_read(data), data.dtype
    # A trial in memory: a value that HDF5 refuses is refused now and not by a commit.
    with h5py.File("attribute", "w", driver="core", backing_store=False, libver="v110") as file:
        try:
            file.attrs.create(name, data, dtype=None if plain else data.dtype)
            kept, unkept = read_attributes(file)
        except (TypeError, ValueError, OSError, RuntimeError) as error:
            reason = first_line(error)
            raise SchemaError(f"attribute {name!r} cannot be kept ({reason}): use another type") from None
    if unkept:
        raise SchemaError(f"attribute {name!r} refers to objects of one file: leave it out")
    return kept.values[name]


def _is_simple(data: np.ndarray[Any, Any]) -> bool:
    """Return whether HDF5 certainly keeps such values, so that the trial (1 ms) is not needed."""
    dtype = data.dtype
    if is_text(dtype):
        return data.size > 0 and sum(map(len, data.ravel().tolist())) <= _SIMPLE_BYTES
    number = dtype.kind in "biuf" and dtype.itemsize <= 8 and dtype.metadata is None
    return number and 0 < data.nbytes <= _SIMPLE_BYTES


def as_read(data: np.ndarray[Any, Any]) -> Any:
    """Return values as h5py reads them from an attribute: text as str, which in a dataset is bytes."""
    if is_text(data.dtype):
        words = np.empty(data.shape, object)
        words.reshape(-1)[:] = [one.decode() for one in data.ravel().tolist()]
        data = words
    return data if data.shape else data[()]


def read_attributes(item: Any) -> tuple[Attributes, dict[str, str]]:
    """Return the attributes of an h5py object that can be kept, and for each other one the reason."""
    values: dict[str, tuple[Any, np.dtype[Any]]] = {}
    exact: dict[str, ExactValue] = {}
    unkept: dict[str, str] = {}
    is_scale = "CLASS" in item.attrs and item.attrs["CLASS"] == b"DIMENSION_SCALE"
    for name in item.attrs:
        if isinstance(name, bytes):
            unkept[name.decode("utf-8", "backslashreplace")] = "has a name that is not UTF-8"
            continue
        attribute = item.attrs.get_id(name)
        kind = attribute.get_type()
        try:
            dtype = flat_dtype(kind.dtype)
        except Exception as error:
            if not is_of_hdf5(error):
                raise
            unkept[name] = f"has a type that h5py cannot read ({first_line(error)})"
            continue
        obstacle = obstacle_to_values(kind) or obstacle_to_reading(kind)
        if name == "DIMENSION_LIST" or (is_scale and name in _SCALES):
            unkept[name] = "ties a dataset to its dimension scale, whose length changes"
        elif has_references(kind):
            unkept[name] = "refers to an object of its own file"
        elif obstacle is not None:
            unkept[name] = obstacle
        else:
            value = in_stored_order(item.attrs[name], dtype)
            found = ExactValue.read(attribute, dtype)
            obstacle = None if found is None else obstacle_to_text(found.data, kind)
            if obstacle is not None:
                unkept[name] = obstacle
            elif _is_writable_text(value):
                values[name] = (value, dtype)
                if found is not None:
                    exact[name] = found
            else:
                unkept[name] = "has text that is not UTF-8, which h5py cannot write"
    return Attributes(values, exact), unkept


def _is_writable_text(value: Any) -> bool:
    """Return whether all text in a value is Unicode."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        return all(is_unicode(one) for one in value.flat if isinstance(one, str))
    return not isinstance(value, str) or is_unicode(value)


def attributes_crc(attributes: Attributes) -> int:
    """Return the CRC32C of names, types, shapes and values, whatever their order.

    For each attribute in the order of names: name, type and shape as UTF-8, each with a NUL after it, and
    then `shardkeep.hdf5.storage.content_hash.value_crc` of the value.

    Examples
    --------
    >>> one = {"unit": as_attribute("unit", "mm"), "n": as_attribute("n", 3)}
    >>> attributes_crc(Attributes(one)) == attributes_crc(Attributes(dict(reversed(one.items()))))
    True
    """
    crc = 0
    for name, (value, dtype) in sorted(attributes.values.items()):
        empty = isinstance(value, h5py.Empty)
        shape = "empty" if empty else str(tuple(map(int, np.shape(value))))
        text = f"{name}\0{_type_text(dtype)}\0{shape}\0"
        crc = crc32c(text.encode("utf-8", "surrogateescape"), crc)
        if dtype.subdtype is not None:
            dtype = dtype.subdtype[0]
        crc = value_crc(value, dtype, crc)
    return crc


def _type_text(dtype: np.dtype[Any]) -> str:
    # NumPy's own text differs between versions.
    text = h5py.check_string_dtype(dtype)
    if text is not None:
        return f"{text.encoding} {text.length}"
    enum = h5py.check_enum_dtype(dtype)
    if enum is not None:
        return f"enum {dtype.str} {sorted(enum.items())}"
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return f"{shape} of {_type_text(base)}"
    if dtype.names is not None:
        return "; ".join(f"{name} {_type_text(dtype[name])}" for name in dtype.names)
    base = h5py.check_vlen_dtype(dtype)
    return dtype.str if base is None else f"many {_type_text(np.dtype(base))}"


def same_value(one: tuple[Any, np.dtype[Any]], two: tuple[Any, np.dtype[Any]]) -> bool:
    """Return whether value and dtype are equal; a NaN equals itself."""
    (value, dtype), (other, other_dtype) = one, two
    if not same_dtype(dtype, other_dtype):
        return False
    if isinstance(value, h5py.Empty) or isinstance(other, h5py.Empty):
        return bool(value == other)
    dtype = dtype.base
    if dtype.hasobject:
        return _same_elements(np.asarray(value), np.asarray(other))
    if dtype.char in "gG":  # long doubles have unused bytes
        return np.shape(value) == np.shape(other) and np.array_equal(value, other, equal_nan=True)
    # By bytes, so that a NaN equals itself; without the padding between fields.
    mine, theirs = np.asarray(value, dtype), np.asarray(other, dtype)
    if dtype.names is not None:
        mine, theirs = repack_fields(mine, recurse=True), repack_fields(theirs, recurse=True)
    return mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()


def _same_elements(one: np.ndarray[Any, Any], two: np.ndarray[Any, Any]) -> bool:
    """Return whether values with parts of variable length are equal."""
    if one.dtype.names is not None:
        return all(_same_elements(one[name], two[name]) for name in one.dtype.names)
    return one.shape == two.shape and all(map(np.array_equal, one.ravel(), two.ravel()))

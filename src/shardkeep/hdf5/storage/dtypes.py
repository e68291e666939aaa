"""Types of values: which HDF5 and h5py keep, when two are equal, and how messages describe them.

HDF5 keeps every NumPy bool, integer, float and complex type in its byte order, fixed bytes (``S``), compound
types of these, h5py's enums, text as variable-length UTF-8, and numbers of variable length
(``h5py.vlen_dtype``). It has no form of ``datetime64``, ``timedelta64`` and other NumPy objects.
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

import h5py
import numpy as np

from shardkeep.errors import SchemaError

__all__ = [
    "TEXT",
    "as_dtype",
    "check_storable",
    "describe",
    "describe_dtype",
    "describe_type",
    "enum_members",
    "flat_dtype",
    "has_parts_elsewhere",
    "has_references",
    "is_text",
    "obstacle_to_reading",
    "obstacle_to_values",
    "same_dtype",
    "same_file_type",
    "vlen_base",
]

_Type = h5py.h5t
TEXT: np.dtype[Any] = h5py.string_dtype("utf-8")


def is_text(dtype: np.dtype[Any]) -> bool:
    """Return whether values are variable-length strings."""
    info = h5py.check_string_dtype(dtype)
    return info is not None and info.length is None


def flat_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return one array type for arrays of arrays; NumPy's arrays of both have the same shape.

    Examples
    --------
    >>> flat_dtype(np.dtype((("<i4", (2,)), (3,))))
    dtype(('<i4', (3, 2)))
    """
    while dtype.subdtype is not None and dtype.base.subdtype is not None:
        dtype = np.dtype((dtype.base.base, dtype.shape + dtype.base.shape))
    return dtype


def vlen_base(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the type of the numbers in rows of variable length; None for other types."""
    base = h5py.check_vlen_dtype(dtype)
    return None if base is None or base in (str, bytes) else np.dtype(base)


def enum_members(dtype: np.dtype[Any]) -> dict[str, int] | None:
    """Return the members of an enum; None for other types, bool included."""
    return None if dtype.kind == "b" else h5py.check_enum_dtype(dtype)


def describe(dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> str:
    """Return dtype and row shape as messages show them.

    Examples
    --------
    >>> describe(np.dtype(">f4"), (3, 2))
    '>f4 rows of shape (3, 2)'
    """
    return f"{describe_dtype(dtype)} rows of shape {row_shape}"


def describe_dtype(dtype: np.dtype[Any]) -> str:
    """Return the text of a dtype; NumPy's own shows enums as integers and variable length as objects.

    Examples
    --------
    >>> describe_dtype(h5py.vlen_dtype(">f4")), describe_dtype(np.dtype([("n", "i2"), ("t", TEXT)]))
    ('variable-length >f4', '{n: int16, t: str}')
    """
    if is_text(dtype):
        return "str"
    if dtype.kind == "S":
        return f"str of {dtype.itemsize} bytes"
    base = vlen_base(dtype)
    if base is not None:
        return f"variable-length {describe_dtype(base)}"
    members = enum_members(dtype)
    if members is not None:
        return f"enum of {np.dtype(dtype.str)} {dict(members)}"
    if dtype.subdtype is not None:
        return f"{describe_dtype(dtype.base)}{list(dtype.shape)}"
    if dtype.names is not None:
        return "{" + ", ".join(f"{name}: {describe_dtype(dtype[name])}" for name in dtype.names) + "}"
    return str(dtype)


def as_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Return a declared dtype as HDF5 will keep it; ``str`` is `TEXT`.

    Raises
    ------
    SchemaError
        It is not a dtype, has a shape, or HDF5 has no such type.
    """
    label = f"dataset {name!r}"
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{label}: dtype={dtype!r} is not a dtype ({error}); pass one") from None
    if result.kind == "U":
        return TEXT
    if result.subdtype is not None:
        message = f"{label}: {result} is a dtype with a shape; pass its base, and the shape as row_shape="
        raise SchemaError(message)
    check_storable(label, result)
    return result


def check_storable(label: str, dtype: np.dtype[Any]) -> None:
    """Raise a `SchemaError` that begins with `label` if HDF5 cannot keep values of a dtype."""
    if dtype.kind == "V" and dtype.names is None and dtype.type is not np.void:
        message = f"{label}: HDF5 has no {dtype}; append rows.astype('float32')"
        raise SchemaError(message)
    try:
        if _points_elsewhere(dtype):
            raise TypeError("a reference, or variable length within variable length")
        h5py.h5t.py_create(dtype, logical=True)
    except (TypeError, ValueError):
        advice = 'append rows.view("int64")' if dtype.kind in "mM" else "use numbers, bytes or str"
        raise SchemaError(f"{label}: HDF5 cannot keep {dtype} values; {advice}") from None
    if not dtype.isnative and dtype.kind == "O":
        raise SchemaError(f"{label}: HDF5 cannot keep {dtype} values")


def _points_elsewhere(dtype: np.dtype[Any]) -> bool:
    base = vlen_base(dtype)
    if base is not None:
        return base.hasobject
    if dtype.names is not None:
        fields = [dtype[field].base for field in dtype.names]
        return any(_points_elsewhere(field) or vlen_base(field) is not None for field in fields)
    return h5py.check_ref_dtype(dtype) is not None


def same_dtype(one: np.dtype[Any], two: np.dtype[Any]) -> bool:
    """Return whether two dtypes are equal, also in NumPy's metadata: enums and strings."""
    if one != two or h5py.check_string_dtype(one) != h5py.check_string_dtype(two):
        return False
    if h5py.check_enum_dtype(one) != h5py.check_enum_dtype(two):
        return False
    if h5py.check_vlen_dtype(one) != h5py.check_vlen_dtype(two):
        return False
    if one.names is not None:
        return all(same_dtype(one[name], two[name]) for name in one.names)
    if one.subdtype is not None and two.subdtype is not None:
        return same_dtype(one.subdtype[0], two.subdtype[0])
    return True


@functools.lru_cache(maxsize=64)
def same_file_type(one: bytes, two: bytes) -> bool:
    """Return whether two encoded types are equal; later file formats encode the same type differently."""
    return one == two or bool(h5py.h5t.decode(one).equal(h5py.h5t.decode(two)))


def obstacle_to_values(kind: h5py.h5t.TypeID, *, varies: bool = False) -> str | None:
    """Return why h5py cannot copy values of a type, as a clause without a subject; None if it can.

    Parameters
    ----------
    kind : h5py.h5t.TypeID
        A type that has a NumPy dtype.
    varies : bool
        Whether the type is that of the elements of a variable-length value.
    """
    code = kind.get_class()
    if code == _Type.OPAQUE and not _Type.py_create(kind.dtype, logical=True).equal(kind):
        return "has opaque values with a tag, which h5py cannot read"
    if code == _Type.VLEN or (code == _Type.STRING and kind.is_variable_str()):
        if varies:
            return "has variable-length values within variable-length values, which h5py cannot copy"
        if code == _Type.STRING:
            return None
        if kind.get_super().get_class() == _Type.ARRAY:
            return "has variable-length values of an array type, which h5py cannot write"
        return obstacle_to_values(kind.get_super(), varies=True)
    if code == _Type.ARRAY:
        return obstacle_to_values(kind.get_super(), varies=varies)
    if code == _Type.COMPOUND:
        members = (kind.get_member_type(number) for number in range(kind.get_nmembers()))
        return next(filter(None, (obstacle_to_values(one, varies=varies) for one in members)), None)
    return None


_CLASSES = {
    _Type.INTEGER: "integer",
    _Type.FLOAT: "float",
    _Type.STRING: "text",
    _Type.ENUM: "enum",
    _Type.TIME: "time",
    _Type.BITFIELD: "bitfield",
    _Type.OPAQUE: "opaque",
    _Type.REFERENCE: "reference",
    _Type.COMPOUND: "compound",
    _Type.ARRAY: "array",
    _Type.VLEN: "variable length",
}


def has_references(kind: h5py.h5t.TypeID) -> bool:
    """Return whether any part of the values refers to objects or regions of their file."""
    return bool(kind.detect_class(_Type.REFERENCE))


def has_parts_elsewhere(kind: h5py.h5t.TypeID) -> bool:
    """Return whether values are in global heaps: variable length, or references."""
    return bool(kind.detect_class(_Type.VLEN) or has_references(kind) or _has_variable_text(kind))


def _has_variable_text(kind: Any) -> bool:
    # H5Tdetect_class does not find text of variable length.
    if isinstance(kind, _Type.TypeStringID):
        return bool(kind.is_variable_str())
    if isinstance(kind, _Type.TypeCompoundID):
        return any(_has_variable_text(kind.get_member_type(i)) for i in range(kind.get_nmembers()))
    if isinstance(kind, (_Type.TypeArrayID, _Type.TypeVlenID)):
        return _has_variable_text(kind.get_super())
    return False


def obstacle_to_reading(kind: h5py.h5t.TypeID) -> str | None:
    """Return why h5py cannot read values of any type, as `obstacle_to_values`; None if it can."""
    is_read = True
    try:
        dtype = kind.dtype
        if kind.get_class() not in (_Type.INTEGER, _Type.FLOAT, _Type.STRING, _Type.ENUM):
            is_read = _Type.find(kind, _Type.py_create(dtype)) is not None
    except (TypeError, ValueError, KeyError, OSError, RuntimeError, NotImplementedError):
        is_read = False
    return None if is_read else f"has values of type {describe_type(kind)}, which h5py cannot read"


def describe_type(kind: h5py.h5t.TypeID) -> str:
    """Return the text of a type as `describe_dtype`, or the name of its class if NumPy has no such type."""
    code = kind.get_class()
    if code not in (_Type.BITFIELD, _Type.TIME):
        with contextlib.suppress(TypeError, ValueError, OSError, RuntimeError, NotImplementedError):
            return describe_dtype(kind.dtype)
    name = _CLASSES.get(code, f"of class {code}")
    if code in (_Type.INTEGER, _Type.FLOAT):
        return f"{name} of {kind.get_size()} bytes"
    if code == _Type.COMPOUND:
        members = [kind.get_member_type(number) for number in range(kind.get_nmembers())]
        return f"{name} of {', '.join(describe_type(one) for one in members)}"
    if code in (_Type.ARRAY, _Type.VLEN):
        return f"{name} of {describe_type(kind.get_super())}"
    return name

"""What may be a row: dtypes, shapes, names of datasets, the size of a chunk, a hash of content.

Rows are kept as HDF5 can keep them without loss: every NumPy bool, integer, float and complex
type in its byte order, fixed bytes (``S``), compound types of these, h5py's enums, and text as
variable-length UTF-8. What NumPy calls object, ``datetime64`` and ``timedelta64`` has no such
form and is refused. Rows of numbers whose length varies (``h5py.vlen_dtype``) are kept where the
dataset was declared with such a type.
"""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
from numpy.lib.recfunctions import repack_fields

from shardkeep._core import crc32c
from shardkeep.errors import SchemaError
from shardkeep.hdf5.storage.exact_casts import fits_as_python_numbers, keeps_whole_numbers, refuse_rounding

__all__ = [
    "RESERVED_NAMES",
    "TEXT",
    "as_bytes",
    "as_dtype",
    "as_first_rows",
    "as_more_rows",
    "as_value",
    "check_name",
    "check_path",
    "check_row_size",
    "chunk_rows_of",
    "content_crc",
    "describe",
    "describe_dtype",
    "is_reserved",
    "is_text",
    "is_unicode",
    "value_crc",
    "vlen_base",
]

TEXT: np.dtype[Any] = h5py.string_dtype("utf-8")
RESERVED_NAMES = ("_checks", "_collector", "_commit", "_provenance", "_receipts")

_CHUNK_BYTES = 512 * 1024
_TEXT_CHUNK_ROWS = 4096
# Rows without values, as of shape (0,), take no bytes: HDF5 has no chunks of them.
_UNBOUNDED_ROWS = 1 << 40
_LONGEST_CHUNK_BYTES = (1 << 32) - 1
_X87_FRACTION_BITS, _X87_BYTES = 63, 10


def check_name(name: object, others: Any) -> str:
    """Return the name of a dataset, checked.

    Parameters
    ----------
    name : str
        Parts between "/" become groups.
    others : container of str
        The names in use.

    Raises
    ------
    SchemaError
        Not a name that HDF5 keeps as it is; reserved; or a group here and a dataset there.
    """
    path = check_path(name, "dataset")
    for other in others:
        if other.startswith(f"{path}/") or path.startswith(f"{other}/"):
            raise SchemaError(f"{name!r} and {other!r} would be a dataset and a group at once: rename one")
    return path


def check_path(name: object, what: str) -> str:
    """Return the name of an object in a file, checked by itself; `what` is said in the error."""
    if not isinstance(name, str):
        raise SchemaError(f"the name of a {what} is a str, not {type(name).__name__}: give it one")
    parts = name.split("/")
    if not is_unicode(name):
        raise SchemaError(f"{name!r} is no Unicode text: choose another name of a {what}")
    if "\0" in name or any(part in ("", ".", "..") for part in parts):
        message = f'{name!r} is no name of a {what}: use parts joined by single "/", none of them "." or ".."'
        raise SchemaError(message)
    if is_reserved(name):
        raise SchemaError(f"{name!r} is used by Shardkeep itself: choose another name")
    return name


def is_reserved(name: str) -> bool:
    """Whether an object of that name, or a group that it is in, is Shardkeep's own.

    Examples
    --------
    >>> is_reserved("_collector/clients"), is_reserved("collector/x")
    (True, False)
    """
    return name.split("/", 1)[0] in RESERVED_NAMES


def is_unicode(text: str) -> bool:
    """Whether a text can be kept as UTF-8; a lone surrogate cannot."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_text(dtype: np.dtype[Any]) -> bool:
    """Whether values are variable-length strings."""
    info = h5py.check_string_dtype(dtype)
    return info is not None and info.length is None


def vlen_base(dtype: np.dtype[Any]) -> np.dtype[Any] | None:
    """Return the type of the numbers in rows of variable length; None if it is another type."""
    base = h5py.check_vlen_dtype(dtype)
    return None if base is None or base in (str, bytes) else np.dtype(base)


def describe(dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> str:
    """Return dtype and row shape as people write them.

    Examples
    --------
    >>> describe(np.dtype(">f4"), (3, 2))
    '>f4 rows of shape (3, 2)'
    """
    return f"{describe_dtype(dtype)} rows of shape {row_shape}"


def describe_dtype(dtype: np.dtype[Any]) -> str:
    """Return a dtype as people write it: NumPy calls enums numbers, and all of variable length objects.

    Examples
    --------
    >>> describe_dtype(h5py.vlen_dtype(">f4")), describe_dtype(np.dtype([("n", "i2"), ("t", TEXT)]))
    ('variable-length >f4', '{n: int16, t: str}')
    """
    enum = h5py.check_enum_dtype(dtype)
    base = vlen_base(dtype)
    if is_text(dtype):
        return "str"
    if base is not None:
        return f"variable-length {describe_dtype(base)}"
    if enum is not None and dtype != np.dtype(bool):
        return f"enum of {np.dtype(dtype.str)} {dict(enum)}"
    if dtype.subdtype is not None:
        return f"{describe_dtype(dtype.base)}{list(dtype.shape)}"
    if dtype.names is not None:
        return "{" + ", ".join(f"{name}: {describe_dtype(dtype[name])}" for name in dtype.names) + "}"
    return str(dtype)


def chunk_rows_of(dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> int:
    """Return how many rows make one chunk: 512 KiB of them, at least one."""
    values = int(np.prod(row_shape, dtype=np.int64))
    if values == 0:
        return _UNBOUNDED_ROWS
    if dtype.hasobject:
        return max(1, _TEXT_CHUNK_ROWS // values)
    return max(1, _CHUNK_BYTES // max(1, dtype.itemsize * values))


def check_row_size(name: str, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> None:
    """Raise a `SchemaError` for rows that no chunk of HDF5 can hold."""
    label = f"dataset {name!r}"
    row_bytes = dtype.itemsize * int(np.prod(row_shape, dtype=object))
    if row_bytes > _LONGEST_CHUNK_BYTES:
        message = f"{label}: a row of {row_bytes} bytes is longer than the 4 GiB of an HDF5 chunk"
        raise SchemaError(f"{message}; make several rows of it")


def as_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    """Return the dtype that somebody declares, as HDF5 will keep it; ``str`` is `TEXT`.

    Raises
    ------
    SchemaError
        It is none, or HDF5 has no such type.
    """
    label = f"dataset {name!r}"
    try:
        result: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise SchemaError(f"{label}: dtype={dtype!r} is no dtype ({error}); give one") from None
    if result.kind == "U":
        return TEXT
    if result.subdtype is not None:
        message = f"{label}: {result} is a dtype with a shape; give its base, and the shape"
        raise SchemaError(f"{message} as row_shape=")
    _check_kept(label, result)
    return result


def as_value(label: str, value: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a scalar or an array of any shape, as HDF5 will keep it.

    `label` says in errors what the value is for, as in "dataset 'x'".

    Raises
    ------
    SchemaError
        HDF5 has no such type.
    """
    array = _as_array(label, value)
    _check_kept(label, array.dtype)
    return array.copy()


def as_first_rows(name: str, rows: Any) -> np.ndarray[Any, Any]:
    """Return the rows that define a dataset, as HDF5 will keep them.

    Raises
    ------
    SchemaError
        There is no leading axis, or HDF5 has no such type.
    """
    label = f"dataset {name!r}"
    array = _with_row_axis(label, _as_array(label, rows))
    _check_kept(label, array.dtype)
    return array


def as_more_rows(
    name: str, rows: Any, dtype: np.dtype[Any], row_shape: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """Return rows for a dataset that exists, in its dtype.

    Raises
    ------
    SchemaError
        The row shape differs, or a value could not be kept. Shows both sides.
    """
    base = vlen_base(dtype)
    if base is not None:
        return _as_ragged(name, rows, dtype, base)
    label = f"dataset {name!r}"
    array = _with_row_axis(label, _as_array(label, rows, dtype))
    if array.shape[1:] != row_shape:
        raise _mismatch(name, array, dtype, row_shape)
    if array.dtype == dtype and _enum(array.dtype) == _enum(dtype):
        return array
    if is_text(dtype) or is_text(array.dtype):
        if is_text(dtype) and (is_text(array.dtype) or array.size == 0):
            return array.astype(dtype)
        raise _mismatch(name, array, dtype, row_shape)
    members = _enum(dtype)
    if members is not None:
        if _enum(array.dtype) is None and array.dtype.kind in "iu":
            if np.isin(array, list(members.values())).all():
                return array.astype(dtype)
            have = describe(dtype, row_shape)
            odd = array[~np.isin(array, list(members.values()))].flat[0]
            raise SchemaError(f"dataset {name!r} has {have}, and {odd} is none of its members: convert it")
        elif array.size == 0 and _enum(array.dtype) is None:
            return array.astype(dtype)
        raise _mismatch(name, array, dtype, row_shape)
    if array.dtype.names != dtype.names:
        raise _mismatch(name, array, dtype, row_shape)
    if array.size == 0:
        return array.astype(dtype)
    if np.can_cast(array.dtype, dtype, "safe") and keeps_whole_numbers(array, dtype):
        return array.astype(dtype)
    if not hasattr(rows, "dtype") and fits_as_python_numbers(array, dtype):
        return array.astype(dtype)
    raise _mismatch(name, array, dtype, row_shape)


def as_bytes(values: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the bytes of fixed-size values, without a copy where they are contiguous."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


def content_crc(values: np.ndarray[Any, Any], crc: int = 0) -> int:
    """Return the CRC32C of rows, continued from that of the rows before them.

    Fixed-size values count as the bytes that are in the file; of a variable-length value, its
    length in bytes (8 bytes, little-endian) and then its bytes.

    Examples
    --------
    >>> rows = np.arange(10)
    >>> content_crc(rows[4:], content_crc(rows[:4])) == content_crc(rows)
    True
    """
    if not values.dtype.hasobject:
        if values.dtype.names is not None:
            # Padding between fields is not content: copies lose it.
            values = repack_fields(values, recurse=True)
        return crc32c(as_bytes(values), crc)
    if values.dtype.names is not None:
        for row in values.reshape(-1, 1):
            for name in values.dtype.names:
                crc = content_crc(row[name], crc)
        return crc
    # One piece: to continue a checksum costs as much as that of a megabyte.
    pieces: list[bytes] = []
    for value in values.ravel():
        if isinstance(value, str):
            value = value.encode("utf-8", "surrogateescape")
        data = value if isinstance(value, bytes) else np.ascontiguousarray(value).tobytes()
        pieces += (len(data).to_bytes(8, "little"), data)
    return crc32c(b"".join(pieces), crc)


def value_crc(value: Any, dtype: np.dtype[Any], crc: int = 0) -> int:
    """Return `content_crc` of what has no rows, as h5py gives it; an empty value has no content.

    The bytes of a long double that mean nothing count as zero: a scalar does not keep them.
    """
    if isinstance(value, h5py.Empty):
        return crc
    array = np.asarray(value, dtype.base)
    if _has_long_double(array.dtype):
        if array.dtype.names is None:
            array = _cleared(array)
        else:
            for row in array.reshape(-1, 1):
                for name in array.dtype.names:
                    crc = value_crc(row[name], row.dtype[name], crc)
            return crc
    return content_crc(array, crc)


def _has_long_double(dtype: np.dtype[Any]) -> bool:
    if dtype.names is not None:
        return any(_has_long_double(dtype[name].base) for name in dtype.names)
    return dtype.char in "gG"


def _cleared(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if np.finfo(np.longdouble).nmant != _X87_FRACTION_BITS:
        return array
    array = array.copy(order="C")
    parts = array.reshape(-1).view(np.uint8).reshape(-1, np.dtype(np.longdouble).itemsize)
    if array.dtype.isnative:
        parts[:, _X87_BYTES:] = 0
    else:
        parts[:, :-_X87_BYTES] = 0
    return array


def _as_array(label: str, rows: Any, dtype: np.dtype[Any] | None = None) -> np.ndarray[Any, Any]:
    if isinstance(rows, np.ma.MaskedArray):
        if np.ma.is_masked(rows):
            raise SchemaError(f"{label}: masked values cannot be kept; append rows.filled(…)")
        rows = rows.data
    try:
        array = np.asarray(rows)
    except (ValueError, TypeError, RuntimeError) as error:  # a tensor with a gradient, or on a device
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        advice = "give a NumPy array"
        if "inhomogeneous" in reason:
            advice = "give all one shape, or declare rows of any length by create(…, h5py.vlen_dtype(…))"
        raise SchemaError(f"{label}: these rows make no array ({reason}): {advice}") from None
    if array.dtype.kind in "fc" and not hasattr(rows, "dtype"):
        refuse_rounding(label, rows, array, array.dtype if dtype is None else dtype)
    if array.dtype.kind in "OUT":
        return _as_text(label, array if hasattr(rows, "dtype") else np.asarray(rows, dtype=object))
    if array.dtype.kind == "S" and not hasattr(rows, "dtype"):
        _check_bytes(label, np.asarray(rows, dtype=object), array)
    if array.dtype.names is not None and array.dtype.hasobject:
        return _with_text_fields(label, array)
    return array


def _with_row_axis(label: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.ndim == 0:
        raise SchemaError(f"{label}: a single value has no row axis; append [value]")
    return array


def _check_kept(label: str, dtype: np.dtype[Any]) -> None:
    if dtype.kind == "V" and dtype.names is None and dtype.type is not np.void:
        message = f"{label}: HDF5 has no {dtype}; append rows.view(numpy.uint16) or float32"
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


def _as_ragged(name: str, rows: Any, dtype: np.dtype[Any], base: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return one array of `base` for each row."""
    try:
        given = list(rows)
    except TypeError:
        raise SchemaError(f"dataset {name!r}: a single value has no row axis; append [value]") from None
    result = np.empty(len(given), dtype)
    for i, row in enumerate(given):
        array = as_more_rows(name, row, base, ())
        result[i] = array.copy() if array is row else array
    return result


def _with_text_fields(label: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    result = array.copy()
    for field in array.dtype.names or ():
        if is_text(array.dtype[field]):
            values = [v.decode() if isinstance(v, bytes) else v for v in array[field].ravel().tolist()]
            result[field] = _as_text(label, np.array([*values, None], object)[:-1].reshape(array.shape))
    return result


def _as_text(label: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Encode strings to UTF-8 bytes, as h5py wants them."""
    result = np.empty(array.shape, dtype=TEXT)
    flat = result.reshape(-1)
    for i, value in enumerate(array.ravel().tolist()):
        if not isinstance(value, str):
            if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
                shown = value if value.bit_length() < 200 else f"an integer of {value.bit_length()} bits"
                raise SchemaError(f"{label}: {shown} has more than 64 bits: append it as a float, or as text")
            kind = type(value).__name__
            message = f"{label}: object rows hold {kind}, only str can be kept; use an array of numbers"
            raise SchemaError(message)
        try:
            flat[i] = value.encode()
        except UnicodeEncodeError:
            raise SchemaError(f"{label}: {value!r} is not Unicode text; append it as bytes") from None
        if "\0" in value:
            raise SchemaError(f"{label}: HDF5 text ends at a NUL, as in {value!r}; append uint8 arrays")
    return result


def _check_bytes(label: str, given: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> None:
    for before, after in zip(given.ravel().tolist(), array.ravel().tolist(), strict=True):
        if before != after:
            message = f"{label}: fixed bytes lose trailing NULs, as in {before!r}; append uint8 arrays"
            raise SchemaError(message)


def _enum(dtype: np.dtype[Any]) -> dict[str, int] | None:
    return None if dtype.kind == "b" else h5py.check_enum_dtype(dtype)


def _mismatch(
    name: str, array: np.ndarray[Any, Any], dtype: np.dtype[Any], row_shape: tuple[int, ...]
) -> SchemaError:
    got, have = describe(array.dtype, array.shape[1:]), describe(dtype, row_shape)
    return SchemaError(f"dataset {name!r} has {have}, these are {got}: convert them, or use another name")

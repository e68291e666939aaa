"""`tf.train.Example` from and to Python values, without protobuf."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardkeep import _core
from shardkeep.errors import SchemaError
from shardkeep.tfrecord.format.frame import as_record

__all__ = [
    "EmptyBytesList",
    "checked_size",
    "decode_example",
    "encode_example",
    "feature_values",
    "named_items",
]

# Protobuf's limit of a message.
_MOST_BYTES = 2**31 - 1
_BYTES = (bytes, bytearray, memoryview)


class EmptyBytesList(list[bytes]):
    """An empty ``bytes_list`` of a decoded message: a list that keeps its kind when it is encoded."""


def encode_example(features: Mapping[str, Any]) -> bytes:
    """Serialise a `tf.train.Example`.

    Parameters
    ----------
    features : mapping of str to value
        A value is a scalar, a list or an array of one kind: bytes or str (stored as UTF-8) become a
        ``bytes_list``; integers and booleans an ``int64_list``; floats a ``float_list`` (float32). Arrays of
        more than one dimension are stored flat, in C order. None becomes a feature without a kind.

    Returns
    -------
    bytes
        Deterministic: the same features give the same bytes, equal to protobuf's deterministic
        serialisation (keys in the order of their bytes, packed numbers).

    Raises
    ------
    SchemaError
        `features` is not a mapping of str; a value has another kind or mixed kinds, is an integer beyond 64
        bits, or is an empty list, which has no kind (pass ``np.array([], "int64")``). Also for a message of 2
        GiB or more, which neither protobuf nor TensorFlow parses.

    Examples
    --------
    >>> record = encode_example({"image_raw": b"png", "label": 3, "box": [0.25, 0.5]})
    >>> decode_example(record)
    {'box': array([0.25, 0.5 ], dtype=float32), 'image_raw': [b'png'], 'label': array([3])}
    """
    named = named_items("features", features)
    values = [feature_values(f"feature {name!r}", value) for name, value in named.items()]
    return checked_size(_core.encode_example(list(named), values))


def decode_example(record: bytes) -> dict[str, Any]:
    """Parse a serialised `tf.train.Example`.

    Parameters
    ----------
    record : bytes
        The serialised message.

    Returns
    -------
    dict of str to ndarray or list of bytes
        In the order of their names: ``int64_list`` as int64, ``float_list`` as float32, ``bytes_list`` as a
        list of `bytes`; a feature without a kind as None. The result can be encoded again, and has the same
        features then: an empty ``bytes_list`` is an empty list that `encode_example` accepts.

    Raises
    ------
    FormatError
        The bytes are another message (`tf.train.SequenceExample`, `tensorflow.Event`, …), text or an image;
        the error names it. (An Example has no magic number, so its structure decides. Other fields than
        those of an Example are skipped, except field 2, which other messages have.)
    CorruptRecordError
        The bytes are not a valid message.
    SchemaError
        `record` is not bytes-like.
    """
    return _core.decode_example(as_record(record))


def named_items(what: str, values: Any, of: str = "values") -> Mapping[str, Any]:
    """Return a mapping of the names of features to something.

    Raises
    ------
    SchemaError
        It is not a mapping, or a name is not a str.
    """
    if not isinstance(values, Mapping):
        if hasattr(values, "items"):  # a row or a table of pandas
            return named_items(what, dict(values.items()), of)
        raise SchemaError(f"{what} must be a dict of names to {of}, not {values!r:.60}")
    for name in values:
        if not isinstance(name, str):
            raise SchemaError(f"the name of a feature must be a str, not {name!r:.60}")
    return values


def checked_size(record: bytes) -> bytes:
    """Return a message; raise a `SchemaError` if it is longer than protobuf allows."""
    if len(record) > _MOST_BYTES:
        raise SchemaError(
            f"an Example of {len(record):,} bytes is longer than the {_MOST_BYTES:,} that protobuf and"
            " TensorFlow can parse: divide it, or write the bytes as a record without an Example"
        )
    return record


def feature_values(what: str, value: Any) -> Any:
    """Return the values of a feature as `_core` takes them: a list of bytes, an int64 or float32 array, None.

    Raises
    ------
    SchemaError
        The value is not valid; the message begins with `what`.
    """
    if value is None or (isinstance(value, EmptyBytesList) and not value):
        return value
    if isinstance(value, _BYTES):
        return [bytes(value)]
    if isinstance(value, str):
        return _bytes_list(what, [value])
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], (*_BYTES, str)):
        return _bytes_list(what, list(value))
    try:
        array = np.asarray(value)
    except ValueError:
        raise SchemaError(f"{what}: lists of different lengths; pass flat values") from None
    if array.dtype.kind in "SUO":
        # Of a list its own items: NumPy makes texts of numbers among them, and removes NULs at the end.
        items = (np.asarray(value, object) if isinstance(value, (list, tuple)) else array).ravel().tolist()
        if array.dtype.kind == "O" and not (items and isinstance(items[0], (*_BYTES, str))):
            raise _not_storable(what, value)
        return _bytes_list(what, items)
    if array.size == 0 and isinstance(value, (list, tuple)):
        raise SchemaError(f'{what}: an empty list has no kind; pass np.array([], "int64"), "float32" or "S"')
    if array.dtype.kind == "b" or array.dtype.kind == "i":
        return array.astype(np.int64, copy=False).ravel()
    if array.dtype.kind == "u":
        if array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise SchemaError(f"{what}: {int(array.max())} cannot be stored; an Example holds int64")
        return array.astype(np.int64, copy=False).ravel()
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            return array.astype(np.float32, copy=False).ravel()
    raise _not_storable(what, value)


def _bytes_list(what: str, values: list[Any]) -> list[bytes]:
    out = []
    for one in values:
        if isinstance(one, str):
            try:
                out.append(one.encode())
            except UnicodeEncodeError:
                message = (
                    f"{what}: UTF-8 cannot hold {one!r:.60}; pass bytes, as os.fsencode(name) returns them"
                )
                raise SchemaError(message) from None
        elif isinstance(one, _BYTES):
            out.append(bytes(one))
        else:
            raise SchemaError(
                f"{what}: {type(one).__name__} among bytes; an Example holds bytes, integers or"
                " floats, one kind in a feature"
            )
    return out


def _not_storable(what: str, value: Any) -> SchemaError:
    values = value if isinstance(value, (list, tuple)) else [value]
    if all(isinstance(one, int) for one in values):
        return SchemaError(f"{what}: {value!r:.60} cannot be stored; an Example holds integers of 64 bits")
    kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__
    return SchemaError(f"{what}: {kind} cannot be stored; an Example holds bytes, integers or floats")

"""`tf.train.SequenceExample` from and to Python values, without protobuf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from shardkeep import _core
from shardkeep.errors import SchemaError
from shardkeep.tfrecord.example.example import EmptyBytesList, checked_size, feature_values, named_items
from shardkeep.tfrecord.format.frame import as_record

__all__ = ["decode_sequence_example", "encode_sequence_example"]


def encode_sequence_example(context: Mapping[str, Any], feature_lists: Mapping[str, Iterable[Any]]) -> bytes:
    """Serialise a `tf.train.SequenceExample`.

    Parameters
    ----------
    context : mapping of str to value
        The features of the whole sequence; values as `encode_example` takes them.
    feature_lists : mapping of str to list of steps
        A step is a value as `encode_example` takes it, or None for a step without a feature. All steps of a
        list have one kind; an empty step (``[]``) takes that of the others. An array is a list of its rows.

    Returns
    -------
    bytes
        Deterministic, and equal to protobuf's deterministic serialisation of a message with both fields set.

    Raises
    ------
    SchemaError
        As `encode_example`; also for steps of different kinds, and for a list whose steps are all empty,
        which has no kind (pass ``np.array([], "int64")`` as a step).

    Examples
    --------
    >>> record = encode_sequence_example({"id": 7}, {"words": [[b"a", b"b"], None, [b"c"]], "t": [0.5, 1.5]})
    >>> context, feature_lists = decode_sequence_example(record)
    >>> context, feature_lists["words"]
    ({'id': array([7])}, [[b'a', b'b'], None, [b'c']])
    >>> feature_lists["t"]
    [array([0.5], dtype=float32), array([1.5], dtype=float32)]
    """
    features, lists = named_items("context", context), named_items("feature_lists", feature_lists)
    values = [feature_values(f"feature {name!r}", value) for name, value in features.items()]
    steps = [_steps(name, steps) for name, steps in lists.items()]
    return checked_size(_core.encode_sequence_example(list(features), values, list(lists), steps))


def decode_sequence_example(record: bytes) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Parse a serialised `tf.train.SequenceExample`.

    Parameters
    ----------
    record : bytes
        The serialised message.

    Returns
    -------
    context : dict of str to ndarray or list of bytes
        As `decode_example` returns it.
    feature_lists : dict of str to list
        The steps of each list, in the order of the lists' names: an int64 or float32 array or a list of
        `bytes`; None for a step that has no kind. The result can be encoded again.

    Raises
    ------
    FormatError
        The bytes are another message, text or an image; the error names it. (A `tf.train.Example` is equal to
        a SequenceExample with a context only, and is decoded as one.)
    CorruptRecordError
        The bytes are not a valid message.
    SchemaError
        `record` is not bytes-like.
    """
    return _core.decode_sequence_example(as_record(record))


def _steps(name: str, steps: Iterable[Any]) -> list[Any]:
    if isinstance(steps, (str, bytes, bytearray, Mapping)) or not isinstance(steps, Iterable):
        raise SchemaError(f"feature list {name!r}: expected a list of steps, found {type(steps).__name__}")
    given = list(steps)
    # An empty list has no kind, except for that of a decoded message.
    empty = [
        isinstance(step, (list, tuple)) and not step and not isinstance(step, EmptyBytesList)
        for step in given
    ]
    values = [
        None if step is None or bare else feature_values(f"feature list {name!r}, step {number}", step)
        for number, (step, bare) in enumerate(zip(given, empty, strict=True))
    ]
    first = next((number for number, value in enumerate(values) if value is not None), None)
    if first is None:
        if any(empty):
            raise SchemaError(
                f"feature list {name!r}: empty steps alone have no kind; pass"
                ' np.array([], "int64"), "float32" or "S" as a step, or None for a step without a feature'
            )
        return values
    kind = _kind(values[first])
    for number, value in enumerate(values):
        if value is not None and _kind(value) != kind:
            raise SchemaError(
                f"feature list {name!r}: step {number} holds {_kind(value)}, step {first} {kind};"
                " the steps of a list have one kind"
            )
    blank: Any = [] if kind == "bytes" else np.array([], kind)
    return [blank if bare else value for value, bare in zip(values, empty, strict=True)]


def _kind(value: Any) -> str:
    return "bytes" if isinstance(value, list) else str(value.dtype)

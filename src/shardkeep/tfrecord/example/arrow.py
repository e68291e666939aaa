"""Whole files of Examples as an Arrow table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from shardkeep._extras import import_extra
from shardkeep.files.incomplete import Incomplete
from shardkeep.files.paths import PathsLike
from shardkeep.tfrecord.example.columns import gather
from shardkeep.tfrecord.example.features import Feature, Image, VarLen

if TYPE_CHECKING:
    import pyarrow

__all__ = ["read_arrow"]

_Array = npt.NDArray[Any]


def read_arrow(
    paths: PathsLike,
    features: Mapping[str, Feature],
    *,
    threads: int | None = None,
    verify: bool = True,
    incomplete: Incomplete = "refuse",
    progress: Callable[[int, int], object] | None = None,
) -> pyarrow.Table:
    """Read whole files of `tf.train.Example` into a `pyarrow.Table`.

    Parameters
    ----------
    paths, features, threads, verify, incomplete, progress
        As `read_columns`.

    Returns
    -------
    pyarrow.Table
        A column for each feature, in one chunk, without nulls:

        ====================================  =====================================================
        `FixedLen` of shape ()                int64, float, or large_binary
        `FixedLen` of shape (n,)              fixed_size_list of n
        `FixedLen` of more dimensions         fixed_shape_tensor; of bytes, nested fixed_size_lists
        `VarLen`                              large_list
        `Image`                               fixed_shape_tensor (height, width, channels)
        ====================================  =====================================================

    Raises
    ------
    MissingExtraError
        pyarrow is not installed: ``pip install 'shardkeep[arrow]'``.
    SchemaError, CorruptRecordError, TruncatedFileError, NotFoundError, FormatError, PlanError
        As `read_columns`.

    Notes
    -----
    Nothing is copied between the arrays that the files were read into and the table, and no Python object is
    made for a byte string. The memory is that of the table and a fixed amount, as for `read_columns`.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import FixedLen, VarLen, Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> with Writer(path) as w:
    ...     for i in range(3):
    ...         w.write_example({"label": i, "words": [b"w"] * i + [b"end"]})
    >>> table = read_arrow(path, {"label": FixedLen(), "words": VarLen("bytes")})
    >>> table.schema
    label: int64
    words: large_list<item: large_binary>
      child 0, item: large_binary
    >>> table.column("words")[2].as_py()
    [b'w', b'w', b'end']
    """
    pa = import_extra("pyarrow", "read_arrow")
    rows, found = gather(
        paths,
        features,
        threads=threads,
        verify=verify,
        incomplete=incomplete,
        progress=progress,
        bytes_as="buffers",
    )
    return pa.table({name: _column(pa, features[name], parts, rows) for name, parts in found.items()})


def _column(pa: ModuleType, feature: Feature, parts: list[_Array], rows: int) -> Any:
    values = parts[0]
    if isinstance(feature, Image):
        return _tensors(pa, _flat(pa, values), values.shape)
    inner = _flat(pa, values) if feature.dtype != "bytes" else _binary(pa, values, parts[1])
    if isinstance(feature, VarLen):
        return _lists(pa, inner, parts[-1])
    if not feature.shape:
        return inner
    if len(feature.shape) == 1 or feature.dtype == "bytes":
        return _nested(pa, inner, (rows, *feature.shape))
    return _tensors(pa, inner, (rows, *feature.shape))


def _flat(pa: ModuleType, values: _Array) -> Any:
    flat = values.reshape(-1)
    return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)])


def _binary(pa: ModuleType, values: _Array, offsets: _Array) -> Any:
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)


def _lists(pa: ModuleType, inner: Any, offsets: _Array) -> Any:
    kind = pa.large_list(inner.type)
    return pa.Array.from_buffers(kind, len(offsets) - 1, [None, pa.py_buffer(offsets)], children=[inner])


def _nested(pa: ModuleType, inner: Any, shape: tuple[int, ...]) -> Any:
    for axis in range(len(shape) - 1, 0, -1):
        kind = pa.list_(inner.type, shape[axis])
        length = math.prod(shape[:axis])
        inner = pa.Array.from_buffers(kind, length, [None], children=[inner])
    return inner


def _tensors(pa: ModuleType, flat: Any, shape: tuple[int, ...]) -> Any:
    storage = _nested(pa, flat, (shape[0], math.prod(shape[1:])))
    return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(flat.type, list(shape[1:])), storage)

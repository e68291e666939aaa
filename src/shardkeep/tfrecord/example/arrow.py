"""Columns of Examples as an Arrow table: of whole files, or of a batch in memory."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shardkeep._extras import import_extra
from shardkeep.errors import SchemaError
from shardkeep.files.incomplete import Incomplete
from shardkeep.files.paths import PathsLike
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.progress import Progress
from shardkeep.tfrecord.example.columns import gather
from shardkeep.tfrecord.example.example import named_items
from shardkeep.tfrecord.example.features import Feature, Image, VarLen
from shardkeep.tfrecord.example.ragged import Ragged

if TYPE_CHECKING:
    import pyarrow

__all__ = ["read_arrow", "to_arrow"]

_Array = npt.NDArray[Any]


@accepts_urls("paths")
def read_arrow(
    paths: PathsLike,
    features: Mapping[str, Feature],
    *,
    text: Collection[str] = (),
    nested: bool = False,
    threads: int | None = None,
    verify: bool = True,
    incomplete: Incomplete = "refuse",
    progress: Progress | None = None,
) -> pyarrow.Table:
    """Read whole files of `tf.train.Example` into a `pyarrow.Table`.

    Parameters
    ----------
    paths, features, threads, verify, incomplete, progress
        As `read_columns`.
    text, nested
        As `to_arrow`.

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
    table = _Table("read_arrow", text, nested)
    table.check_text(features)
    rows, found = gather(
        paths,
        features,
        threads=threads,
        verify=verify,
        incomplete=incomplete,
        progress=progress,
        bytes_as="buffers",
    )
    for name, parts in found.items():
        table.add_parts(name, features[name], parts, rows)
    return table.finish()


def to_arrow(
    columns: Mapping[str, Any], *, text: Collection[str] = (), nested: bool = False
) -> pyarrow.Table:
    """Return columns in memory, such as a batch of a `Loader`, as a `pyarrow.Table`.

    Parameters
    ----------
    columns : mapping of str to ndarray or Ragged
        Columns with the same number of rows, as `read_columns` and `Loader` return them. With the column
        ``valid`` of a batch, only the rows where it is True become rows of the table, and it is left out.
    text : collection of str
        Names of columns of bytes that hold UTF-8, which become large_string instead of large_binary.
    nested : bool
        True to return values of more than one dimension as nested fixed_size_lists instead of
        fixed_shape_tensor, an extension type that Polars and Hugging Face datasets do not convert.

    Returns
    -------
    pyarrow.Table
        A column for each of `columns`, with the types of `read_arrow`. Numbers are not copied.

    Raises
    ------
    MissingExtraError
        pyarrow is not installed: ``pip install 'shardkeep[arrow]'``.
    SchemaError
        A column of `text` does not exist, is not bytes or not UTF-8; or a value is not an array.

    Examples
    --------
    >>> table = to_arrow({"x": np.arange(3), "name": np.array([b"a", b"b", b"c"], object)}, text=["name"])
    >>> table.schema
    x: int64
    name: large_string
    >>> table.slice(1).to_pylist()
    [{'x': 1, 'name': 'b'}, {'x': 2, 'name': 'c'}]
    """
    table = _Table("to_arrow", text, nested)
    columns = dict(named_items("columns", columns))
    valid = columns.pop("valid", None)
    table.check_text(columns)
    for name, column in columns.items():
        if not isinstance(column, (np.ndarray, Ragged)) or not column.ndim:
            raise SchemaError(f"column {name!r} must be an array or a Ragged, not {column!r:.60}")
        table.add(name, column if valid is None or valid.all() else column[valid])
    return table.finish()


class _Table:
    """Arrow columns by name.

    Parameters
    ----------
    use : str
        The public function, for errors.
    text, nested
        As `to_arrow`.
    """

    def __init__(self, use: str, text: Collection[str], nested: bool) -> None:
        self._pa = import_extra("pyarrow", use)
        self._text = {text} if isinstance(text, str) else set(text)
        self._is_nested = nested
        self._columns: dict[str, Any] = {}

    def check_text(self, columns: Collection[str]) -> None:
        unknown = sorted(self._text.difference(columns))
        if unknown:
            raise SchemaError(
                f"text names the column {unknown[0]!r}, which is not among {', '.join(columns):.80}"
            )

    def add_parts(self, name: str, feature: Feature, parts: list[_Array], rows: int) -> None:
        """Add a column as `gather` returns it."""
        values = parts[0]
        if isinstance(feature, Image):
            self._columns[name] = self._shaped(self._flat(name, values), values.shape)
            return
        is_binary = feature.dtype == "bytes"
        inner = self._strings(name, self._binary(values, parts[1])) if is_binary else self._flat(name, values)
        if isinstance(feature, VarLen):
            self._columns[name] = self._lists(inner, parts[-1])
        else:
            self._columns[name] = self._shaped(inner, (rows, *feature.shape))

    def add(self, name: str, column: _Array | Ragged) -> None:
        """Add a column of a batch."""
        if isinstance(column, Ragged):
            offsets = column.offsets
            values = column.values[offsets[0] : offsets[-1]]
            if column.dtype == np.uint8:  # raw records
                self._columns[name] = self._strings(name, self._binary(values, offsets - offsets[0]))
            else:
                self._columns[name] = self._lists(self._values(name, values), offsets - offsets[0])
        else:
            self._columns[name] = self._shaped(self._values(name, column), column.shape)

    def finish(self) -> pyarrow.Table:
        return self._pa.table(self._columns)

    def _values(self, name: str, values: _Array) -> Any:
        if values.dtype != object:
            return self._flat(name, np.ascontiguousarray(values))
        try:
            return self._strings(name, self._pa.array(values.ravel().tolist(), self._pa.large_binary()))
        except (self._pa.ArrowInvalid, TypeError) as error:
            raise SchemaError(f"column {name!r} must hold bytes: {error}") from None

    def _strings(self, name: str, binary: Any) -> Any:
        if name not in self._text:
            return binary
        try:
            return binary.cast(self._pa.large_string())
        except self._pa.ArrowInvalid as error:
            raise SchemaError(f"column {name!r} is not text ({error}): leave it out of text=") from None

    def _flat(self, name: str, values: _Array) -> Any:
        if name in self._text:
            raise SchemaError(f"column {name!r} holds {values.dtype}, not bytes: leave it out of text=")
        pa, flat = self._pa, values.reshape(-1)
        if flat.dtype == bool:  # Arrow has bits
            return pa.array(flat)
        return pa.Array.from_buffers(pa.from_numpy_dtype(flat.dtype), len(flat), [None, pa.py_buffer(flat)])

    def _binary(self, values: _Array, offsets: _Array) -> Any:
        pa = self._pa
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(values)]
        return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)

    def _lists(self, inner: Any, offsets: _Array) -> Any:
        pa = self._pa
        buffers = [None, pa.py_buffer(offsets)]
        return pa.Array.from_buffers(pa.large_list(inner.type), len(offsets) - 1, buffers, children=[inner])

    def _shaped(self, inner: Any, shape: tuple[int, ...]) -> Any:
        pa = self._pa
        if len(shape) <= 2 or self._is_nested or not pa.types.is_primitive(inner.type):
            return self._nested(inner, shape)
        storage = self._nested(inner, (shape[0], math.prod(shape[1:])))
        return pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(inner.type, list(shape[1:])), storage)

    def _nested(self, inner: Any, shape: tuple[int, ...]) -> Any:
        pa = self._pa
        for axis in range(len(shape) - 1, 0, -1):
            kind = pa.list_(inner.type, shape[axis])
            length = math.prod(shape[:axis])
            inner = pa.Array.from_buffers(kind, length, [None], children=[inner])
        return inner

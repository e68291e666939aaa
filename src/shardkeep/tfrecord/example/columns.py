"""Whole files of Examples as columns in memory."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import SchemaError
from shardkeep.files.incomplete import Incomplete
from shardkeep.files.paths import PathsLike
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.progress import Progress
from shardkeep.tfrecord.example.batches import BytesAs, ColumnBatch, batches_of, runs_of
from shardkeep.tfrecord.example.features import Feature, FixedLen, Image, describe
from shardkeep.tfrecord.example.ragged import Ragged
from shardkeep.tfrecord.index.scan import thread_count
from shardkeep.tfrecord.shard_names import expand_shards

__all__ = ["gather", "read_columns"]

# A batch is a temporary copy of a part of the result: its size is the fixed part of the memory.
_BATCH_ROWS = 8192
_BATCH_BYTES = 8 << 20
_FIRST_ROWS = 16


@accepts_urls("paths")
def read_columns(
    paths: PathsLike,
    features: Mapping[str, Feature],
    *,
    threads: int | None = None,
    verify: bool = True,
    incomplete: Incomplete = "refuse",
    progress: Progress | None = None,
) -> dict[str, npt.NDArray[Any] | Ragged]:
    """Read whole files of `tf.train.Example` into one array for each feature.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord files. Compressed ones are read too, with one thread.
    features : mapping of str to FixedLen, VarLen or Image
        How to decode each feature; see `infer_schema`. Other features are skipped.
    threads : int, optional
        Number of threads that read, verify and decode; by default the number of processors.
    verify : bool
        Check the CRC of every payload. The headers' are checked in any case.
    incomplete : {"refuse", "warn", "allow"}
        Treatment of a set of shards that is not whole, as for `shardkeep.Loader`.
    progress : callable, optional
        Called as ``progress(done_bytes, total_bytes)`` in the calling thread, after each part. An exception
        that it raises ends the reading.

    Returns
    -------
    dict of str to ndarray or Ragged
        In the order of `features`; a row for each record, in the order of the files and of the records in
        them. `FixedLen`: ``(rows, *shape)``, int64, float32, or object (of `bytes`). `VarLen`: a `Ragged`.
        `Image`: (rows, height, width, channels), uint8 or float32; (0, 0, 0, channels) without records.

    Raises
    ------
    SchemaError
        A record lacks a feature without a default, or has it in another dtype, number or image size; the
        message has file, record, feature, and the expected and found values.
    CorruptRecordError, TruncatedFileError
        A file is damaged; the error has the offset. Also for a record that is not a valid message, or an
        image that cannot be decoded.
    FormatError
        A record is another message, text or an image, as for `decode_example`; also as `Reader`.
    NotFoundError
        As `Reader`.
    PlanError
        A file is named twice, or a set of shards is not whole.

    Notes
    -----
    The memory needed is that of the result, 16 bytes of index a record, and some 50 MB, plus up to an
    eighth of a ragged column while it grows. Byte strings cost 33 bytes each as Python objects: `read_arrow`
    avoids this cost.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import FixedLen, VarLen, Writer
    >>> path = os.path.join(tempfile.mkdtemp(), "a.tfrecord")
    >>> with Writer(path) as w:
    ...     for i in range(3):
    ...         w.write_example({"label": i, "words": [b"w"] * i + [b"end"]})
    >>> columns = read_columns(path, {"label": FixedLen(), "words": VarLen("bytes")})
    >>> columns["label"], columns["words"][2]
    (array([0, 1, 2]), array([b'w', b'w', b'end'], dtype=object))
    """
    _, found = gather(
        paths,
        features,
        threads=threads,
        verify=verify,
        incomplete=incomplete,
        progress=progress,
        bytes_as="objects",
    )
    return {
        name: parts[0] if len(parts) == 1 else Ragged(parts[0], parts[1]) for name, parts in found.items()
    }


def gather(
    paths: PathsLike,
    features: Mapping[str, Feature],
    *,
    threads: int | None,
    verify: bool,
    incomplete: Incomplete,
    progress: Progress | None,
    bytes_as: BytesAs,
) -> tuple[int, dict[str, list[npt.NDArray[Any]]]]:
    """Read columns as lists of arrays, for `read_columns` and `read_arrow`.

    Returns
    -------
    rows : int
    columns : dict of str to list of ndarray
        The values, then the offsets of each level, the innermost first: for byte strings as buffers, the
        offsets of the values in bytes; for `VarLen`, the offsets of the rows in values. Values of a fixed
        shape have that shape, unless they are buffers of bytes.
    """
    described = describe(features)
    if not described:
        raise SchemaError("features={} is not valid: pass at least one, as in {'label': FixedLen()}")
    names = expand_shards(paths, incomplete)
    threads = thread_count(threads)
    total_bytes = sum(os.path.getsize(name) for name in names if os.path.isfile(name))
    runs = runs_of(names, threads=threads)
    known = sum(run.records for run in runs)
    nothing = _core.ColumnBuilder(described, 0, bytes_as=bytes_as).finish()
    columns = {name: _Column(name, feature, nothing[name], known) for name, feature in features.items()}

    def budget() -> tuple[int, int]:
        row_bytes = sum(column.row_bytes for column in columns.values())
        if math.isinf(row_bytes):
            return _FIRST_ROWS, _BATCH_BYTES
        return max(min(_BATCH_ROWS, int(_BATCH_BYTES / max(row_bytes, 1))), 1), _BATCH_BYTES

    # With one run and a known number of rows, the engine writes directly into the result.
    whole: dict[str, Any] | None = {} if len(runs) == 1 and runs[0].starts is not None else None
    rows = done_bytes = 0
    for run in runs:
        for batch in batches_of(
            run,
            described,
            budget=budget,
            threads=threads,
            verify=bool(verify),
            bytes_as=bytes_as,
            gathered=whole,
        ):
            for name, part in batch.columns.items():
                columns[name].add(batch, part)
            rows += batch.rows
            if progress is not None and run.starts is not None:
                done_bytes += batch.file_bytes
                progress(min(done_bytes, total_bytes), total_bytes)
        if progress is not None and run.starts is None:
            # The position in a compressed file is known only to its reader.
            done_bytes += sum(os.path.getsize(name) for name in run.paths)
            progress(min(done_bytes, total_bytes), total_bytes)
    whole = whole or {}
    return rows, {
        name: [whole[name]] if name in whole else column.finish() for name, column in columns.items()
    }


class _Column:
    """One column that grows by batches."""

    def __init__(self, name: str, feature: Feature, empty: Any, rows: int) -> None:
        values, *offsets = empty if isinstance(empty, tuple) else (empty,)
        self._name = name
        self._rows = 0
        self._known_rows = rows
        self._is_open_image = isinstance(feature, Image) and not (feature.size and feature.channels)
        self._shape: tuple[int, ...] = values.shape[1:]
        self._values = _Growing(values.dtype)
        self._offsets = []
        inner = math.prod(feature.shape) if isinstance(feature, FixedLen) else 0
        for level in range(len(offsets)):
            last = level == len(offsets) - 1
            grown = _Growing(np.dtype(np.int64))
            grown.reserve(1 + (rows * inner if inner else rows if last else 0))
            grown.extend(np.zeros(1, np.int64))
            self._offsets.append(grown)

    @property
    def row_bytes(self) -> float:
        """Size of a row, without its variable part; infinite for images of unknown size."""
        if self._is_open_image:
            return math.inf
        return 0 if self._offsets else math.prod(self._shape) * self._values.itemsize

    def add(self, batch: ColumnBatch, raw: Any) -> None:
        self._rows += batch.rows
        values, *offsets = raw if isinstance(raw, tuple) else (raw,)
        if self._is_open_image:
            self._is_open_image = False
            self._shape = values.shape[1:]
        elif not offsets and values.shape[1:] != self._shape:
            expected, found = ("x".join(map(str, shape)) for shape in (self._shape, values.shape[1:]))
            raise SchemaError(
                f"{batch.path}: record {batch.record}: feature {self._name!r}: expected {expected}"
                f" (height, width, channels) as in the first image, found {found}; pass size= and channels="
                " to Image to make them equal",
                path=batch.path,
                record=batch.record,
            )
        if not offsets:
            # The number of values is known in advance only for fixed shapes.
            self._values.reserve(self._known_rows * math.prod(self._shape))
        self._values.extend(values.reshape(-1))
        for grown, one in zip(self._offsets, offsets, strict=True):
            grown.extend(one[1:] + grown.last)

    def finish(self) -> list[npt.NDArray[Any]]:
        values = self._values.finish()
        if self._offsets:
            return [values, *(grown.finish() for grown in self._offsets)]
        return [values.reshape(self._rows, *self._shape)]


class _Growing:
    """A one-dimensional array that grows at its end.

    The kernel grows a large block by moving its pages (mremap), so nothing is copied and only one copy exists
    at any time; a list of parts that are joined at the end would need twice the memory.
    """

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._array: npt.NDArray[Any] = np.empty(0, dtype)
        self._length = 0

    @property
    def itemsize(self) -> int:
        return self._array.dtype.itemsize

    @property
    def last(self) -> Any:
        return self._array[self._length - 1]

    def reserve(self, capacity: int) -> None:
        """Allocate capacity in an empty array."""
        if capacity > len(self._array) and self._length == 0:
            self._array = np.empty(capacity, self._array.dtype)

    def extend(self, part: npt.NDArray[Any]) -> None:
        end = self._length + len(part)
        if end > len(self._array):
            # No view of the array exists.
            self._array.resize(max(end, end + end // 8), refcheck=False)
        self._array[self._length : end] = part
        self._length = end

    def finish(self) -> npt.NDArray[Any]:
        if self._length < len(self._array):
            self._array.resize(self._length, refcheck=False)
        return self._array

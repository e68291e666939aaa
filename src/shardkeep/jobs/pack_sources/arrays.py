"""NumPy arrays as records: row i of each array is a feature of record i."""

from __future__ import annotations

import math
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from shardkeep.errors import FormatError, SchemaError, ShardkeepError, TruncatedFileError
from shardkeep.jobs.pack_sources.source import Item, PackSource

__all__ = ["ArrayRows", "read_arrays"]

_ROWS = 1024
_NAME = "data"


class ArrayRows(PackSource):
    """Arrays in memory, or in .npy and .npz files.

    Parameters
    ----------
    arrays : mapping of str to array
        All of the same length along their first axis.
    paths : sequence of str
        Files from which they come, if any.

    Notes
    -----
    Integers and booleans become int64, floats float32, strings and bytes bytes; rows of several dimensions
    are stored flat, in C order, for `FixedLen` with their shape. Each field of a structured array becomes a
    feature.
    """

    kind = "numpy"

    def __init__(self, arrays: Mapping[str, Any], paths: Sequence[str] = ()) -> None:
        super().__init__(paths)
        self._arrays: dict[str, Any] = {}
        for name, given in arrays.items():
            array = given if isinstance(given, _StoredArray) else np.asarray(given)
            if array.dtype.names is not None:
                self._arrays.update((field, array[field]) for field in array.dtype.names)
            else:
                self._arrays[name] = array
        where = self.paths[0] if self.paths else "the arrays"
        if not self._arrays:
            raise SchemaError(f"{where}: no array to pack", path=where if self.paths else None)
        lengths = {}
        for name, array in self._arrays.items():
            if array.ndim == 0:
                raise SchemaError(f"{where}: {name!r} is a single value; pass an array with rows")
            lengths[name] = len(array)
            self.features[name] = self._feature(name, array, where)
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name!r} {length}" for name, length in lengths.items())
            raise SchemaError(f"{where}: all arrays must have the same length: {listed}")
        self._rows = next(iter(lengths.values()))
        self.total_bytes = sum(array.nbytes for array in self._arrays.values())

    def __iter__(self) -> Iterator[Item]:
        for first in range(0, self._rows, _ROWS):
            some = {name: array[first : first + _ROWS] for name, array in self._arrays.items()}
            for row in range(min(_ROWS, self._rows - first)):
                yield {name: array[row] for name, array in some.items()}
            self.done_bytes += sum(array.nbytes for array in some.values())

    def _feature(self, name: str, array: Any, where: str) -> str:
        kind = array.dtype.base.kind
        if kind in "biu":
            return "int64"
        if kind == "f":
            if array.dtype.itemsize > 4:
                self.notes.append(
                    f"{name!r}: {array.dtype} is stored as float32, the float type of an Example"
                )
            return "float32"
        if kind in "SU":
            return "bytes"
        raise SchemaError(
            f"{where}: {name!r} has the type {array.dtype}; an Example holds integers, floats and bytes"
        )


def read_arrays(paths: Sequence[str]) -> ArrayRows:
    """Open .npy and .npz files.

    The array of a .npy file is called "data" and read in blocks of rows. Those of a .npz file have the names
    under which they were saved, and are loaded into memory.

    Raises
    ------
    FormatError
        The file is not a NumPy file, is damaged, or has Python objects.
    TruncatedFileError
        The file is shorter than its header says.
    SchemaError
        There are several files.
    """
    if len(paths) > 1:
        raise SchemaError(
            f"{paths[1]}: pack one NumPy file at a time; concatenate the arrays before", path=paths[1]
        )
    path = paths[0]
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"PK"
            file.seek(0)
            if packed:
                # Opened here, because NumPy does not close a damaged file.
                with np.load(file, allow_pickle=False) as loaded:
                    return ArrayRows({name: loaded[name] for name in loaded.files}, [path])
            return ArrayRows({_NAME: _stored(file, path)}, [path])
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, ShardkeepError):
            raise
        reason = " ".join(str(error).split())
        raise FormatError(f"{path}: NumPy cannot read it without pickles ({reason})", path=path) from None


def _stored(file: BinaryIO, path: str) -> Any:
    version = np.lib.format.read_magic(file)
    first = version == (1, 0)
    read_header = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    array = _StoredArray(path, file.tell(), shape, dtype)
    size_bytes = os.fstat(file.fileno()).st_size
    if size_bytes < array.end_bytes:
        raise TruncatedFileError(
            f"{path}: the file ends after {size_bytes:,} of {array.end_bytes:,} bytes",
            path=path,
            offset_bytes=size_bytes,
        )
    if fortran and len(shape) > 1:
        return np.load(path, allow_pickle=False)  # its rows are not contiguous
    return array


class _StoredArray:
    """An array in a .npy file, read in slices of rows.

    It is not mapped into memory: a file that is truncated while it is mapped kills the process.
    """

    def __init__(
        self, path: str, offset_bytes: int, shape: tuple[int, ...], dtype: Any, field: str | None = None
    ) -> None:
        self._path, self._offset_bytes, self._shape, self._whole = path, offset_bytes, shape, dtype
        self._field = field
        self.dtype = dtype if field is None else dtype[field].base
        self.ndim = len(shape)
        self._row_bytes = dtype.itemsize * math.prod(shape[1:])
        self.nbytes = self._row_bytes * (shape[0] if shape else 1)
        self.end_bytes = offset_bytes + self.nbytes

    def __len__(self) -> int:
        return self._shape[0]

    def __getitem__(self, rows: slice | str) -> Any:
        if isinstance(rows, str):
            return _StoredArray(self._path, self._offset_bytes, self._shape, self._whole, rows)
        first, last, _ = rows.indices(len(self))
        want = (last - first) * self._row_bytes
        with open(self._path, "rb") as file:
            file.seek(self._offset_bytes + first * self._row_bytes)
            data = file.read(want)
        if len(data) < want:
            raise TruncatedFileError(
                f"{self._path}: the file became shorter while it was read", path=self._path
            )
        block = np.frombuffer(data, self._whole).reshape(last - first, *self._shape[1:])
        return block if self._field is None else block[self._field]

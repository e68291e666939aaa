"""Records of TFRecord shards and rows of HDF5 datasets by number, for the map-style data sets of frameworks.

Both are small when they are pickled, and read by offset, so they cross fork and spawn and may be used from
several threads.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import CorruptRecordError, SchemaError
from shardkeep.files.incomplete import Incomplete
from shardkeep.files.paths import PathsLike
from shardkeep.hdf5.open.open_file import open as open_hdf5
from shardkeep.loader.sources import ShardSource
from shardkeep.tfrecord.example.features import Feature, describe
from shardkeep.tfrecord.example.ragged import Ragged
from shardkeep.tfrecord.format.file_kind import with_file_kind

__all__ = ["Records", "Rows"]


class Records:
    """Records of shards by number, in the order of the shards.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord files without compression.
    features : mapping of str to FixedLen, VarLen or Image, optional
        Features of the Examples. An element is then a dict of one array, bytes or number for each feature;
        without it, it is the record as bytes.
    verify : bool
        Check the CRC of every payload.
    incomplete : {"refuse", "warn", "allow"}
        Treatment of a set of shards that is not whole, as for `shardkeep.Loader`.

    Raises
    ------
    NotFoundError, FormatError, CorruptRecordError, TruncatedFileError, SchemaError, PlanError
        As `shardkeep.Loader`; also when an element is read. After unpickling, `PlanError` for shards that
        have changed.
    """

    def __init__(
        self,
        paths: PathsLike,
        features: Mapping[str, Feature] | None = None,
        *,
        verify: bool = True,
        incomplete: Incomplete = "refuse",
    ) -> None:
        self.features = None if features is None else dict(features)
        self.verify = bool(verify)
        self._described = None if features is None else describe(features)
        if self._described == []:
            raise SchemaError("features must not be empty; pass None for raw records")
        self._source = ShardSource(paths, incomplete, shuffle=False, seed=0, on_corrupt="raise")
        self._files: dict[int, _core.RecordFile] = {}

    def __len__(self) -> int:
        return self._source.positions

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        wanted = _absolute(indices, len(self), "record")
        shard, record = self._source.shards.table.locate(wanted)
        elements: list[Any] = [None] * len(wanted)
        for number in np.unique(shard).tolist():
            rows = np.flatnonzero(shard == number)
            try:
                found = self._file(number).read_many(record[rows].astype(np.uint64))
            except CorruptRecordError as error:
                raise with_file_kind(error) from None
            path = self._source.shards.paths[number]
            for row, content in zip(rows.tolist(), found, strict=True):
                elements[row] = self._decoded(content, path, int(record[row]))
        return elements

    def __repr__(self) -> str:
        identity = self._source.shards.identity
        return f"<{type(self).__name__} of {self._source.describe()}, {identity.fingerprint}>"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_files": {}}

    def _file(self, number: int) -> _core.RecordFile:
        file = self._files.get(number)
        if file is None:
            shards = self._source.shards
            file = _core.RecordFile(shards.fetched(number), shards.positions, number, verify=self.verify)
            self._files[number] = file
        return file

    def _decoded(self, record: bytes, path: str, number: int) -> Any:
        if self._described is None:
            return record
        builder = _core.ColumnBuilder(self._described, 1)
        builder.fill([record], path=path, first_record=number)
        return {
            name: Ragged(*column)[0] if isinstance(column, tuple) else column[0]
            for name, column in builder.finish().items()
        }


class Rows:
    """Rows of HDF5 datasets by number.

    Parameters
    ----------
    path : str or os.PathLike
        An HDF5 file, also a merged one with virtual datasets; opened by `shardkeep.hdf5.open`.
    names : str or iterable of str, optional
        Datasets, which must have the same number of rows; by default all that lie in the root group. An
        element is a dict of one row for each.

    Raises
    ------
    ShardkeepError
        As `shardkeep.hdf5.open`; also when a row is read.
    SchemaError
        A dataset does not exist, has no rows, or has another number of rows.
    """

    def __init__(self, path: str | os.PathLike[str], names: str | Iterable[str] | None = None) -> None:
        self._file = file = open_hdf5(path)
        self.path = str(file.filename)
        if names is None:
            names = [name for name, one in file.items() if hasattr(one, "shape")]
        self.names = [names] if isinstance(names, str) else list(names)
        self._datasets = {name: self._dataset(name) for name in self.names}
        lengths = {name: len(dataset) for name, dataset in self._datasets.items()}
        if len(set(lengths.values())) != 1:
            shown = ", ".join(f"{name!r} {length}" for name, length in lengths.items()) or "no dataset"
            raise SchemaError(
                f"{self.path}: an element has a row of each dataset, but they have different numbers of rows"
                f" ({shown}): pass names= of equal ones",
                path=self.path,
            )
        self._length: int = lengths[self.names[0]]

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[dict[str, Any]]:
        # h5py reads a list of rows several times slower than each row alone; a run of rows is one read.
        numbers, places = np.unique(_absolute(indices, len(self), "row"), return_inverse=True)
        stops = np.flatnonzero(np.diff(numbers, append=numbers[-1:] + 2) > 1) + 1
        runs = [(int(run[0]), int(run[-1]) + 1) for run in np.split(numbers, stops[:-1]) if len(run)]
        rows: dict[str, list[Any]] = {}
        for name, dataset in self._datasets.items():
            rows[name] = [row for start, stop in runs for row in dataset[start:stop]]
        return [{name: of_dataset[place] for name, of_dataset in rows.items()} for place in places.tolist()]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._length:,} rows of {', '.join(self.names)} in {self.path}>"

    def _dataset(self, name: str) -> Any:
        dataset = self._file.get(name)
        if not getattr(dataset, "shape", None):
            found = "does not exist" if dataset is None else "has no rows"
            raise SchemaError(f"{self.path}: dataset {name!r} {found}", path=self.path)
        return dataset


def _absolute(indices: Sequence[int], count: int, unit: str) -> npt.NDArray[np.int64]:
    wanted = np.asarray(indices, np.int64).reshape(-1)
    bad = (wanted < -count) | (wanted >= count)
    if bad.any():
        raise IndexError(f"{unit} {int(wanted[bad][0])} does not exist: there are {count}")
    return np.where(wanted < 0, wanted + count, wanted)

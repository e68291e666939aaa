"""`KeyedRows`: a dataset of known length, whose rows come in any order, each once."""

from __future__ import annotations

import itertools
from typing import Any

import h5py
import numpy as np

from shardkeep.collector.protocol.limits import MOST_NUMBERED_ROWS
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.store.open_datasets import OPEN_BYTES, OpenDatasets
from shardkeep.collector.store.stored_rows import allocate_chunk, chunk_address
from shardkeep.errors import CollectorError, SchemaError
from shardkeep.hdf5.journal.live_file import LiveFile

__all__ = ["WRITERS", "KeyedRows", "check_row_count"]

WRITERS = "_collector/writers"

_WRITER_CHUNK = 1 << 16
_MOST_ADDRESSES = 1 << 15
_ADDRESS_BYTES = 200
# The array that HDF5 finds chunks by has 32 bits for their number.
_MOST_CHUNKS = (1 << 32) - 1


def check_row_count(schema: Schema) -> None:
    """Raise `SchemaError` for more rows by number than HDF5 can place."""
    if schema.rows is not None:
        most = min(max(schema.chunk_rows, 1), _WRITER_CHUNK) * _MOST_CHUNKS
        if schema.rows > most:
            message = (
                f"dataset {schema.name!r} is declared with {schema.rows:,} rows, HDF5 places {most:,} here"
            )
            raise SchemaError(f"{message}: declare fewer, or more rows in a chunk (chunk_rows=)")


class KeyedRows:
    """Rows by number; who wrote which is kept beside them.

    ``_collector/writers/NAME`` has for each row 1 + the rank that wrote it, or 0. A row that nobody
    wrote is zeros.

    Parameters
    ----------
    live : LiveFile
    dataset : h5py.Dataset, shape (schema.rows, ...)
    schema : Schema
    opened : OpenDatasets
        Closes it while other datasets need the memory.
    """

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        assert schema.rows is not None
        self.live = live
        self.schema = schema
        self._file = dataset.file
        self._opened = opened
        self._dataset: h5py.Dataset | None = None
        self._writers_dataset: h5py.Dataset | None = None
        self.rows = schema.rows
        self._addresses: dict[int, int] = {}
        self._writer_addresses: dict[int, int] = {}
        file, name = self._file, f"{WRITERS}/{schema.name}"
        if name not in file:
            chunk = max(min(_WRITER_CHUNK, schema.rows), 1)
            file.create_dataset(name, shape=(schema.rows,), maxshape=(None,), chunks=(chunk,), dtype="<i4")
        self._writer_rows: int = file[name].chunks[0]

    @property
    def dataset(self) -> h5py.Dataset:
        """The dataset, opened if it is not."""
        if self._dataset is None:
            self.keep_open(self._file[self.schema.name])
        return self._dataset

    @property
    def _writers(self) -> h5py.Dataset:
        if self._writers_dataset is None:
            self._writers_dataset = self._file[f"{WRITERS}/{self.schema.name}"]
        return self._writers_dataset

    def keep_open(self, dataset: h5py.Dataset) -> None:
        """Take a dataset that is open already."""
        self._dataset = dataset
        self._opened.use(self, self._held_bytes)

    def close(self) -> None:
        """Keep nothing in memory that the file can hold."""
        self._dataset = self._writers_dataset = None
        self._addresses.clear()
        self._writer_addresses.clear()

    @property
    def _held_bytes(self) -> int:
        return 2 * OPEN_BYTES + _ADDRESS_BYTES * (len(self._addresses) + len(self._writer_addresses))

    def put(self, data: memoryview, keys: np.ndarray[Any, Any], rank: int) -> None:
        """Put rows at their places.

        Raises
        ------
        CollectorError
            A key is outside, or its row was written before: names both ranks. Nothing was put.
        """
        size = self.schema.row_bytes
        if len(data) != len(keys) * size:
            raise CollectorError(f"{len(data)} bytes are not {len(keys)} rows of {size} bytes each")
        if len(keys) > MOST_NUMBERED_ROWS:
            raise CollectorError(f"{len(keys)} rows by number in one part: {MOST_NUMBERED_ROWS} are allowed")
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        self._check(keys, rank)
        source = np.frombuffer(data, np.uint8).reshape(len(keys), size)[order]
        for start, stop in _runs(keys, self.schema.chunk_rows):
            chunk, inside = divmod(int(keys[start]), self.schema.chunk_rows)
            self.live.change(self._place(chunk) + inside * size, source[start:stop].tobytes())
        for start, stop in _runs(keys, self._writer_rows):
            chunk, inside = divmod(int(keys[start]), self._writer_rows)
            mark = np.full(stop - start, rank + 1, "<i4").tobytes()
            self.live.change(self._place_of_writers(chunk) + 4 * inside, mark)
        for known in (self._addresses, self._writer_addresses):
            if len(known) > _MOST_ADDRESSES:
                known.clear()
        self._opened.use(self, self._held_bytes)

    def settle(self) -> None:
        """Do nothing: rows are in the next commit as they are."""

    def finish(self) -> None:
        """Do nothing."""

    def _check(self, keys: np.ndarray[Any, Any], rank: int) -> None:
        name, rows = self.schema.name, self.rows
        if len(keys) and (keys[0] < 0 or keys[-1] >= rows):
            outside = int(keys[0] if keys[0] < 0 else keys[-1])
            message = f"dataset {name!r} has rows 0 to {rows - 1}, rank {rank} writes row {outside}"
            raise CollectorError(f"{message}: declare it with as many rows as there are keys")
        twice = keys[1:][keys[1:] == keys[:-1]]
        if len(twice):
            raise CollectorError(f"rank {rank} writes row {int(twice[0])} of {name!r} twice in one call")
        for start, stop in _runs(keys // self._writer_rows, 0):
            chunk = int(keys[start]) // self._writer_rows
            inside = keys[start:stop] % self._writer_rows
            first, size = int(inside[0]), int(inside[-1] - inside[0] + 1)
            writers = self.live.read_at(self._place_of_writers(chunk) + 4 * first, 4 * size)
            before = np.frombuffer(writers, "<i4")[inside - first]
            taken = np.flatnonzero(before)
            if len(taken):
                row, first = int(keys[start + taken[0]]), int(before[taken[0]]) - 1
                message = (
                    f"row {row} of {name!r} was written by rank {first} and is written again by rank {rank}"
                )
                raise CollectorError(f"{message}: each row is written once")

    def _place(self, chunk: int) -> int:
        address = self._addresses.get(chunk)
        if address is None:
            address = self._addresses[chunk] = self._find(self.dataset, chunk, self.schema.row_bytes)
        return address

    def _find(self, dataset: h5py.Dataset, chunk: int, row_bytes: int) -> int:
        row = chunk * dataset.chunks[0]
        address = chunk_address(dataset, row)
        return (
            address
            if address >= 0
            else allocate_chunk(self.live, dataset, row, dataset.chunks[0] * row_bytes)
        )

    def _place_of_writers(self, chunk: int) -> int:
        address = self._writer_addresses.get(chunk)
        if address is None:
            address = self._writer_addresses[chunk] = self._find(self._writers, chunk, 4)
        return address


def _runs(keys: np.ndarray[Any, Any], chunk_rows: int) -> list[tuple[int, int]]:
    """Return [start, stop) of the parts of sorted keys that follow each other within one chunk.

    With ``chunk_rows=0`` the parts of equal values.
    """
    if not len(keys):
        return []
    steps = np.diff(keys)
    cut = (steps != 1) | (keys[1:] % chunk_rows == 0) if chunk_rows else steps != 0
    edges = [0, *(np.flatnonzero(cut) + 1).tolist(), len(keys)]
    return list(itertools.pairwise(edges))

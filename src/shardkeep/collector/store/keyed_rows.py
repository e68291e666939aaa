"""`KeyedRows`: a dataset of fixed length whose rows come in any order, each once."""

from __future__ import annotations

import itertools
from typing import Any

import h5py
import numpy as np

from shardkeep.collector.protocol.limits import MOST_NUMBERED_ROWS
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.store.datasets import (
    OPEN_BYTES,
    OpenDatasets,
    StoredDataset,
    allocate_chunk,
    chunk_address,
)
from shardkeep.errors import CollectorError, SchemaError
from shardkeep.hdf5.journal.live_file import LiveFile
from shardkeep.world import REMEDY

__all__ = ["WRITERS", "KeyedRows", "check_row_count"]

WRITERS = "_collector/writers"

_WRITER_CHUNK = 1 << 16
_MOST_ADDRESSES = 1 << 15
_ADDRESS_BYTES = 200
# The index that HDF5 finds chunks by has 32 bits for their number.
_MOST_CHUNKS = (1 << 32) - 1


def check_row_count(schema: Schema) -> None:
    """Raise `SchemaError` for more rows by number than HDF5 can place."""
    if schema.rows is not None:
        most = min(max(schema.chunk_rows, 1), _WRITER_CHUNK) * _MOST_CHUNKS
        if schema.rows > most:
            message = f"dataset {schema.name!r} is declared with {schema.rows:,} rows, HDF5 places {most:,}"
            raise SchemaError(f"{message} here: declare fewer, or more rows in a chunk (chunk_rows=)")


class KeyedRows(StoredDataset):
    """Rows by number, with the rank that wrote each of them.

    ``_collector/writers/NAME`` has for each row 1 + the rank that wrote it, or 0 for a row that was not
    written and reads as zeros. Both change committed bytes, so both go through the redo log.
    """

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        assert schema.rows is not None
        super().__init__(live, dataset, schema, opened)
        self._writers_dataset: h5py.Dataset | None = None
        # HDF5 goes over the chunks to find one: 0.4 ms of 1,000.
        self._addresses: dict[int, int] = {}
        self._writer_addresses: dict[int, int] = {}
        file, name = self._file, f"{WRITERS}/{schema.name}"
        if name not in file:
            chunk = max(min(_WRITER_CHUNK, schema.rows), 1)
            file.create_dataset(name, shape=(schema.rows,), maxshape=(None,), chunks=(chunk,), dtype="<i4")
        self._writer_rows: int = file[name].chunks[0]

    @property
    def _writers(self) -> h5py.Dataset:
        if self._writers_dataset is None:
            self._writers_dataset = self._file[f"{WRITERS}/{self.schema.name}"]
        return self._writers_dataset

    @property
    def written(self) -> int:
        """Number of rows that were written."""
        return sum(
            int(np.count_nonzero(self._writers[start : start + self._writer_rows]))
            for start in range(0, self.rows, self._writer_rows)
        )

    @property
    def held_bytes(self) -> int:
        """Memory of both open datasets and of the known offsets of chunks."""
        return 2 * OPEN_BYTES + _ADDRESS_BYTES * (len(self._addresses) + len(self._writer_addresses))

    def close(self) -> None:
        """Release the memory."""
        super().close()
        self._writers_dataset = None
        self._addresses.clear()
        self._writer_addresses.clear()

    def put(self, data: memoryview, keys: np.ndarray[Any, Any], rank: int, world_size: int) -> None:
        """Write rows at their numbers.

        Raises
        ------
        CollectorError
            A key is out of range, or its row was written before; the error names both ranks. No row of this
            call was written.
        """
        size = self.schema.row_bytes
        self._check_size(data, len(keys))
        if len(keys) > MOST_NUMBERED_ROWS:
            raise CollectorError(f"{len(keys)} rows by number in one part: {MOST_NUMBERED_ROWS} are allowed")
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        self._check(keys, rank, world_size)
        source = np.frombuffer(data, np.uint8).reshape(len(keys), size)[order]
        for start, stop in _runs(keys, self.schema.chunk_rows):
            chunk, inside = divmod(int(keys[start]), self.schema.chunk_rows)
            self.live.change(self._row_chunk(chunk) + inside * size, source[start:stop].tobytes())
        for start, stop in _runs(keys, self._writer_rows):
            chunk, inside = divmod(int(keys[start]), self._writer_rows)
            mark = np.full(stop - start, rank + 1, "<i4").tobytes()
            self.live.change(self._writer_chunk(chunk) + 4 * inside, mark)
        for known in (self._addresses, self._writer_addresses):
            if len(known) > _MOST_ADDRESSES:
                known.clear()
        self._opened.use(self, self.held_bytes)

    def _check(self, keys: np.ndarray[Any, Any], rank: int, world_size: int) -> None:
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
            writers = self.live.read_at(self._writer_chunk(chunk) + 4 * first, 4 * size)
            before = np.frombuffer(writers, "<i4")[inside - first]
            written = np.flatnonzero(before)
            if len(written):
                row, first = int(keys[start + written[0]]), int(before[written[0]]) - 1
                message = f"row {row} of {name!r} was written by rank {first} and is written again"
                advice = "each row is written once"
                if first == rank and world_size == 1:
                    advice = f"{advice}; if it was another process, each is rank 0 of 1: {REMEDY}"
                raise CollectorError(f"{message} by rank {rank}: {advice}")

    def _row_chunk(self, chunk: int) -> int:
        address = self._addresses.get(chunk)
        if address is None:
            address = self._addresses[chunk] = self._find(self.dataset, chunk, self.schema.row_bytes)
        return address

    def _writer_chunk(self, chunk: int) -> int:
        address = self._writer_addresses.get(chunk)
        if address is None:
            address = self._writer_addresses[chunk] = self._find(self._writers, chunk, 4)
        return address

    def _find(self, dataset: h5py.Dataset, chunk: int, row_bytes: int) -> int:
        """Return the offset of a chunk, which is allocated if it does not exist."""
        rows = dataset.chunks[0]
        address = chunk_address(dataset, chunk * rows)
        return address if address >= 0 else allocate_chunk(self.live, dataset, chunk * rows, rows * row_bytes)


def _runs(keys: np.ndarray[Any, Any], chunk_rows: int) -> list[tuple[int, int]]:
    """Return [start, stop) of the runs of consecutive sorted keys within one chunk.

    With ``chunk_rows=0``, of the runs of equal values.
    """
    if not len(keys):
        return []
    steps = np.diff(keys)
    cut = (steps != 1) | (keys[1:] % chunk_rows == 0) if chunk_rows else steps != 0
    edges = [0, *(np.flatnonzero(cut) + 1).tolist(), len(keys)]
    return list(itertools.pairwise(edges))

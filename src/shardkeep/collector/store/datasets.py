"""Datasets of a live file, of which only the recently used ones are open and hold memory.

A collector may have thousands of datasets. The others are a name, a type and a few numbers.
"""

from __future__ import annotations

from collections import OrderedDict

import h5py

from shardkeep.collector.protocol.schema import Schema
from shardkeep.errors import CollectorError
from shardkeep.hdf5.journal.live_file import LiveFile

__all__ = ["OPEN_BYTES", "OpenDatasets", "StoredDataset", "allocate_chunk", "chunk_address"]

OPEN_BYTES = 16 * 1024
"""Memory of HDF5 and h5py for an open dataset (measured: 13 KB)."""


class OpenDatasets:
    """The open datasets, least recently used first; those beyond the limit of their memory are closed.

    Parameters
    ----------
    most_bytes : int
        Limit for all of them; the one in use may take more.

    Attributes
    ----------
    unsaved_bytes : int
        Part of the memory that the next commit adds to the changes of the live file.

    Examples
    --------
    >>> class Dataset:
    ...     def close(self): print("closed")
    >>> datasets = OpenDatasets(100)
    >>> datasets.use(Dataset(), 60)
    >>> datasets.use(Dataset(), 60)
    closed
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._bytes = self.unsaved_bytes = 0
        self._sizes: OrderedDict[StoredDataset, int] = OrderedDict()

    def use(self, dataset: StoredDataset, size: int) -> None:
        """Mark a dataset as the most recently used one, which holds `size` bytes."""
        self._bytes += size - self._sizes.pop(dataset, 0)
        self._sizes[dataset] = size
        while self._bytes > self._most_bytes and len(self._sizes) > 1:
            oldest = next(iter(self._sizes))
            self.remove(oldest)
            oldest.close()

    def remove(self, dataset: StoredDataset) -> None:
        """Count a dataset no longer."""
        self._bytes -= self._sizes.pop(dataset, 0)


class StoredDataset:
    """One dataset of a live file. Its rows are part of the next commit after `prepare_commit`.

    Parameters
    ----------
    live : LiveFile
    dataset : h5py.Dataset
    schema : Schema
    opened : OpenDatasets
        Closes this dataset when others need its memory.

    Attributes
    ----------
    rows : int
        All rows, committed or not.
    """

    def __init__(self, live: LiveFile, dataset: h5py.Dataset, schema: Schema, opened: OpenDatasets) -> None:
        self.live = live
        self.schema = schema
        self.rows: int = dataset.shape[0]
        self._file = dataset.file
        self._dataset: h5py.Dataset | None = None
        self._opened = opened

    @property
    def dataset(self) -> h5py.Dataset:
        """The dataset, opened again if it was closed."""
        if self._dataset is None:
            self.keep_open(self._file[self.schema.name])
        return self._dataset

    @property
    def held_bytes(self) -> int:
        """Memory of the dataset while it is open."""
        return OPEN_BYTES

    def keep_open(self, dataset: h5py.Dataset) -> None:
        """Use a dataset that is open already."""
        self._dataset = dataset
        self._opened.use(self, self.held_bytes)

    def prepare_commit(self) -> None:
        """Make every row so far part of the next commit."""

    def finish(self) -> None:
        """Write what must be in the dataset when the file is closed for good."""
        self.prepare_commit()

    def close(self) -> None:
        """Release the memory; the rows stay part of the next commit."""
        self.prepare_commit()
        self._dataset = None

    def _check_size(self, data: memoryview, rows: int) -> None:
        size = self.schema.row_bytes
        if len(data) != rows * size:
            raise CollectorError(f"{len(data)} bytes are not {rows} rows of {size} bytes each")


def allocate_chunk(live: LiveFile, dataset: h5py.Dataset, row: int, size: int) -> int:
    """Return the offset in the file that HDF5 assigns to the new chunk that begins with `row`."""
    place = (row, *(0 for _ in dataset.shape[1:]))
    return live.allocate(lambda data: dataset.id.write_direct_chunk(place, data), size)


def chunk_address(dataset: h5py.Dataset, row: int) -> int:
    """Return the offset in the file of the chunk that holds `row`; -1 if it does not exist."""
    start = row - row % dataset.chunks[0]
    info = dataset.id.get_chunk_info_by_coord((start, *(0 for _ in dataset.shape[1:])))
    return -1 if info.byte_offset is None else int(info.byte_offset)

"""``_collector/clients``: the clients of a file, with the sequence number of the newest batch of each."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import h5py
import numpy as np

from shardkeep.collector.store.datasets import allocate_chunk, chunk_address
from shardkeep.hdf5.journal.live_file import LiveFile

__all__ = ["CLIENTS", "LEFT", "ClientEntry", "ClientTable"]

CLIENTS = "_collector/clients"
LEFT = 1
_LEFT_BEFORE = 2

_ROW = struct.Struct("<16siiQQQ")
_TYPE = np.dtype(
    [
        ("id", "V16"),
        ("rank", "<i4"),
        ("world_size", "<i4"),
        ("sequence", "<u8"),
        ("rows", "<u8"),
        ("closed", "<u8"),
    ]
)
# Small, since most files have few clients.
_CHUNK_ROWS = 64


@dataclass
class ClientEntry:
    """One client; `sequence` is the number of its newest batch that was received, 0 before the first.

    `closed` is 0 while the client may send more, `LEFT` after its goodbye, and 2 if the file was closed
    properly after that: then the run is over, and the next one counts its ranks from zero.
    """

    id: bytes
    rank: int
    world_size: int
    sequence: int = 0
    rows: int = 0
    closed: int = 0


class ClientTable:
    """The table in a live file. Its changes are part of the next commit after `prepare_commit`.

    Parameters
    ----------
    live : LiveFile
    file : h5py.File
        The file of `live`; the table is created if it does not exist.
    """

    def __init__(self, live: LiveFile, file: h5py.File) -> None:
        self._live = live
        if CLIENTS not in file:
            file.create_dataset(CLIENTS, shape=(0,), maxshape=(None,), chunks=(_CHUNK_ROWS,), dtype=_TYPE)
        self._dataset: h5py.Dataset = file[CLIENTS]
        self._entries = [ClientEntry(*_ROW.unpack(row.tobytes())) for row in self._dataset[:]]
        self._numbers = {entry.id: number for number, entry in enumerate(self._entries)}
        self._changed: set[int] = set()
        self._chunk_rows = self._dataset.chunks[0]
        starts = range(0, len(self._entries), self._chunk_rows)
        self._addresses = [chunk_address(self._dataset, start) for start in starts]

    def find(self, identity: bytes) -> ClientEntry | None:
        """Return the entry of a client, committed or not."""
        number = self._numbers.get(identity)
        return None if number is None else self._entries[number]

    def finished(self) -> tuple[set[int], int]:
        """Return the ranks that have left in the current run, and the size of its world."""
        newest = {entry.rank: entry for entry in self._entries}
        left = {rank: entry for rank, entry in newest.items() if entry.closed == LEFT}
        return set(left), max((entry.world_size for entry in left.values()), default=0)

    @property
    def rows(self) -> int:
        """Number of rows that all clients have sent."""
        return sum(entry.rows for entry in self._entries)

    def is_newcomer(self, entry: ClientEntry) -> bool:
        """Return whether a client is not in the table while another client of its rank is."""
        return entry.id not in self._numbers and any(one.rank == entry.rank for one in self._entries)

    def end_run(self) -> None:
        """Mark the clients that have left as clients of a run that is over."""
        for entry in self._entries:
            if entry.closed == LEFT:
                entry.closed = _LEFT_BEFORE
                self.update(entry)

    def update(self, entry: ClientEntry) -> None:
        """Add an entry, or mark one as changed."""
        number = self._numbers.get(entry.id)
        if number is None:
            number = self._numbers[entry.id] = len(self._entries)
            self._entries.append(entry)
        self._entries[number] = entry
        self._changed.add(number)

    def prepare_commit(self) -> None:
        """Write the changed entries."""
        if not self._changed:
            return
        if len(self._entries) > self._dataset.id.shape[0]:
            self._dataset.id.set_extent((len(self._entries),))
        while len(self._addresses) * self._chunk_rows < len(self._entries):
            row = len(self._addresses) * self._chunk_rows
            self._addresses.append(
                allocate_chunk(self._live, self._dataset, row, self._chunk_rows * _ROW.size)
            )
        for number in sorted(self._changed):
            chunk, inside = divmod(number, self._chunk_rows)
            one = self._entries[number]
            data = _ROW.pack(one.id, one.rank, one.world_size, one.sequence, one.rows, one.closed)
            self._live.change(self._addresses[chunk] + inside * _ROW.size, data)
        self._changed.clear()

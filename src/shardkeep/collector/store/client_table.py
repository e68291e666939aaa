"""``_collector/clients``: who wrote, and how far: the sequence number of each client's newest batch."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import h5py
import numpy as np

from shardkeep.collector.store.stored_rows import allocate_chunk, chunk_address
from shardkeep.hdf5.journal.live_file import LiveFile

__all__ = ["CLIENTS", "LEFT", "ClientEntry", "ClientTable"]

CLIENTS = "_collector/clients"

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
_CHUNK_ROWS = 1024
LEFT = 1
LEFT_BEFORE = 2


@dataclass
class ClientEntry:
    """One client: `sequence` of the newest batch that was taken, 0 before the first.

    `closed` is 0 while it may send more, `LEFT` once it said goodbye, and `LEFT_BEFORE` when the file was
    closed in good order since: then the run is over, and the next one counts anew.
    """

    id: bytes
    rank: int
    world_size: int
    sequence: int = 0
    rows: int = 0
    closed: int = 0


class ClientTable:
    """The table in a live file. What `settle` writes belongs to the next commit.

    Parameters
    ----------
    live : LiveFile
    file : h5py.File
        Of `live`; the table is made if it is not there.
    """

    def __init__(self, live: LiveFile, file: h5py.File) -> None:
        self._live = live
        self._places: dict[bytes, int] = {}
        self._entries: list[ClientEntry] = []
        self._addresses: list[int] = []
        self._touched: set[int] = set()
        if CLIENTS not in file:
            file.create_dataset(CLIENTS, shape=(0,), maxshape=(None,), chunks=(_CHUNK_ROWS,), dtype=_TYPE)
        self._dataset: h5py.Dataset = file[CLIENTS]
        for row in self._dataset[:]:
            entry = ClientEntry(*_ROW.unpack(row.tobytes()))
            self._places[entry.id] = len(self._entries)
            self._entries.append(entry)
        for start in range(0, len(self._entries), _CHUNK_ROWS):
            self._addresses.append(chunk_address(self._dataset, start))

    def find(self, identity: bytes) -> ClientEntry | None:
        """Return the entry of a client, with what is in no commit yet."""
        place = self._places.get(identity)
        return None if place is None else self._entries[place]

    def finished(self) -> tuple[set[int], int]:
        """Return which ranks have left in the run that was not ended yet, and the size of its world."""
        newest = {entry.rank: entry for entry in self._entries}
        left = {rank: entry for rank, entry in newest.items() if entry.closed == LEFT}
        return set(left), max((entry.world_size for entry in left.values()), default=0)

    def is_newcomer(self, entry: ClientEntry) -> bool:
        """Whether it is not in the table, and another client of its rank is."""
        return entry.id not in self._places and any(one.rank == entry.rank for one in self._entries)

    def end_run(self) -> None:
        """Note that whoever has left did so in a run that is over."""
        for entry in self._entries:
            if entry.closed == LEFT:
                entry.closed = LEFT_BEFORE
                self.note(entry)

    def note(self, entry: ClientEntry) -> None:
        """Take a new entry, or one that changed."""
        place = self._places.get(entry.id)
        if place is None:
            place = self._places[entry.id] = len(self._entries)
            self._entries.append(entry)
        self._entries[place] = entry
        self._touched.add(place)

    def settle(self) -> None:
        """Write what changed."""
        if not self._touched:
            return
        if len(self._entries) > self._dataset.id.shape[0]:
            self._dataset.id.set_extent((len(self._entries),))
        while len(self._addresses) * _CHUNK_ROWS < len(self._entries):
            row = len(self._addresses) * _CHUNK_ROWS
            self._addresses.append(allocate_chunk(self._live, self._dataset, row, _CHUNK_ROWS * _ROW.size))
        for place in sorted(self._touched):
            entry = self._entries[place]
            data = _ROW.pack(entry.id, entry.rank, entry.world_size, entry.sequence, entry.rows, entry.closed)
            chunk, inside = divmod(place, _CHUNK_ROWS)
            self._live.change(self._addresses[chunk] + inside * _ROW.size, data)
        self._touched.clear()

"""Check of a stored chunk: whether it decodes to a whole chunk, and whether a checksum proves it.

HDF5 does not compare the size of decoded bytes with that of a chunk: after a chunk that is too short it
returns other memory. So the filters of most files are undone here. ``fletcher32`` and the Adler-32 of deflate
prove the bytes; other filters decode damaged bytes, too. The sums of ``fletcher32`` are modulo 65,535, so 0
and 0xffff are the same to it: a chunk with several such words in a row is not proved by it.
"""

from __future__ import annotations

import zlib
from typing import Any

import h5py
import numpy as np

from shardkeep._core import fletcher32
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.storage.dtypes import has_parts_elsewhere
from shardkeep.jobs.salvage.hdf5.attributes import stored_size

__all__ = ["DamagedChunkError", "Filters"]

_DEFLATE, _SHUFFLE, _FLETCHER32 = h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32
_SAME_SIZE = (_SHUFFLE,)
_RUN_WORDS = 4


class DamagedChunkError(Exception):
    """Error for a chunk that cannot be decoded."""


class Filters:
    """The filters of a dataset, in the order in which they are applied when a chunk is written.

    Parameters
    ----------
    properties : PropDCID
        Of a dataset with chunks.
    kind : TypeID
    """

    def __init__(self, properties: h5py.h5p.PropDCID, kind: Any) -> None:
        self._properties = properties
        self._filters = [properties.get_filter(number) for number in range(properties.get_nfilters())]
        self._item_bytes = stored_size(kind)
        # Values that are elsewhere would be read from there.
        opaque = has_parts_elsewhere(kind)
        self._kind = h5py.h5t.create(h5py.h5t.OPAQUE, self._item_bytes) if opaque else kind
        self._chunk: tuple[int, ...] = tuple(properties.get_chunk())
        self.chunk_bytes = self._item_bytes * int(np.prod(self._chunk, dtype=object))
        self._memory: tuple[h5py.File, Any] | None = None

    def check(self, stored: bytes, mask: int) -> bool:
        """Return whether a checksum proves a chunk.

        Raises
        ------
        DamagedChunkError
            It is damaged.
        """
        proved = False
        data = stored
        if mask >> len(self._filters):
            raise DamagedChunkError("its filter mask is not valid")
        applied = [code for position, (code, *_) in enumerate(self._filters) if not mask >> position & 1]
        for code in reversed(applied):
            if code == _FLETCHER32:
                data = _without_fletcher32(data)
                proved |= not _has_ambiguous_words(data)
            elif code == _DEFLATE:
                data = self._inflated(data)
                proved = True
            elif code not in _SAME_SIZE:
                self.decode(stored, mask)
                return proved
        if len(data) != self.chunk_bytes:
            raise DamagedChunkError(f"it has {len(data):,} bytes, not {self.chunk_bytes:,}")
        return proved

    def decode(self, stored: bytes, mask: int) -> Any:
        """Return the elements of a chunk, decoded by HDF5 in a file in memory that has nothing else.

        Raises
        ------
        DamagedChunkError
            HDF5 cannot decode it.
        """
        if self._memory is None:
            file = h5py.File("chunk", "w", driver="core", backing_store=False, rdcc_nbytes=0)
            properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
            properties.set_chunk(self._chunk)
            for code, flags, values, _ in self._filters:
                properties.set_filter(code, flags, values)
            space = h5py.h5s.create_simple(self._chunk)
            self._memory = file, h5py.h5d.create(file.id, b"chunk", self._kind, space, properties)
        dataset = self._memory[1]
        items = np.empty(self._chunk, f"V{self._item_bytes}")
        try:
            dataset.write_direct_chunk((0,) * len(self._chunk), stored, mask)
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, items, self._kind)
        except (OSError, RuntimeError) as error:
            raise DamagedChunkError(f"its filters cannot decode it ({first_line(error)})") from error
        return items

    def _inflated(self, data: bytes) -> bytes:
        # More than a chunk, with a checksum that another filter added, is not needed: the size is wrong then.
        decoder = zlib.decompressobj()
        try:
            found = decoder.decompress(data, self.chunk_bytes + 64)
            if not decoder.eof:
                found += decoder.decompress(decoder.unconsumed_tail, 1)
        except zlib.error as error:
            raise DamagedChunkError(f"gzip cannot decode it ({error})") from None
        if not decoder.eof:
            raise DamagedChunkError("gzip cannot decode it (its end is missing)")
        return found


def _without_fletcher32(data: bytes) -> bytes:
    if len(data) < 4:
        raise DamagedChunkError("it is shorter than its checksum")
    stored = int.from_bytes(data[-4:], "little")
    one, two = fletcher32(data[:-4])
    # HDF5 1.6.2 and before stored the bytes of each half in the other order.
    halves = stored & 0xFFFF, stored >> 16
    swapped = tuple(int.from_bytes(half.to_bytes(2, "little"), "big") for half in halves)
    if (one, two) not in [tuple(half % 0xFFFF for half in pair) for pair in (halves, swapped)]:
        raise DamagedChunkError("its fletcher32 checksum is wrong")
    return data[:-4]


def _has_ambiguous_words(data: bytes) -> bool:
    for byte in (b"\0", b"\xff"):
        run = byte * (2 * _RUN_WORDS)
        at = data.find(run)
        while at >= 0:
            # An odd start has a word less.
            if at % 2 == 0 or data[at + len(run) : at + len(run) + 1] == byte:
                return True
            at = data.find(run, at + 1)
    return False

"""Copies of records into compressed shards, each written as one stream from beginning to end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import CorruptDataError
from shardkeep.files.kinds.kind import Compression
from shardkeep.files.leftovers import open_temporary
from shardkeep.files.threads.groups import size_runs
from shardkeep.files.threads.work import Tick
from shardkeep.jobs.division.assignment import BATCH_BYTES
from shardkeep.jobs.division.frames import Copied, record_digest
from shardkeep.jobs.division.source import Source, changed_error
from shardkeep.jobs.division.targets import Place
from shardkeep.tfrecord.format.frame import OVERHEAD_BYTES
from shardkeep.tfrecord.reader import Reader
from shardkeep.tfrecord.shard_sinks import OpenSink

__all__ = ["PackedPart"]


@dataclass(frozen=True)
class PackedPart:
    """All records of some shards, from all sources.

    Attributes
    ----------
    sources : tuple of Source
    shards : ndarray of int32, shape (records,)
        Shard of each record of all sources.
    places : dict
        Place of each shard of this unit; the offsets are 0.
    compression : {"gzip", "zlib"}
    verify : bool
    size_bytes : int
        Size of the frames of these shards.
    """

    sources: tuple[Source, ...]
    shards: npt.NDArray[np.int32]
    places: dict[int, Place]
    compression: Compression
    verify: bool
    size_bytes: int

    @property
    def path(self) -> str:
        """Path of the first source."""
        return self.sources[0].path

    def copy(self, tick: Tick) -> Copied:
        """Write whole compressed shards and read them back.

        The unit may be repeated, but not by two processes at the same time.

        Raises
        ------
        CorruptDataError, CorruptRecordError, TruncatedFileError, DurabilityError
            As for `shardkeep.jobs.division.frames.PlainPart`.
        """
        records = frame_bytes = 0
        read: dict[int, list[int]] = {shard: [] for shard in self.places}
        with contextlib.ExitStack() as stack:
            sinks = {}
            for shard, place in self.places.items():
                fd = open_temporary(place.temporary, os.O_WRONLY)
                try:
                    os.ftruncate(fd, 0)  # bytes of an earlier attempt
                finally:
                    os.close(fd)
                sinks[shard] = OpenSink(place.temporary, place.path, compression=self.compression)
                stack.callback(sinks[shard].drop)
            for shard, record in _wanted(self):
                sinks[shard].write(record)
                read[shard].append(_identity(record))
                records += 1
                frame_bytes += len(record) + OVERHEAD_BYTES
                tick(len(record) + OVERHEAD_BYTES)
            for sink in sinks.values():
                sink.finish()
        digests = 0
        for shard, place in self.places.items():
            there = [
                _identity(record)
                for record in Reader(place.temporary, compression=self.compression, verify=self.verify)
            ]
            if there != read[shard]:
                raise CorruptDataError(
                    f"{place.path}: the records written are not those read; check memory and disk",
                    path=place.path,
                )
            digests += _digest(there)
        return Copied(records, frame_bytes, sum(map(_digest, read.values())) % 2**64, digests % 2**64)


def _wanted(part: PackedPart) -> Iterator[tuple[int, bytes]]:
    first = 0
    for source in part.sources:
        shards = part.shards[first : first + source.records]
        first += source.records
        mine = np.flatnonzero(np.isin(shards, list(part.places)))
        if not source.is_stream:
            file = _core.RecordFile(source.path, source.starts, verify=part.verify)
            ends = source.starts.astype(np.int64)
            sizes = ends[mine + 1] - ends[mine]
            for begin, end in size_runs(sizes, BATCH_BYTES):
                some = mine[begin:end]
                yield from zip(shards[some].tolist(), file.read_many(some.astype(np.uint64)), strict=True)
        else:
            wanted = np.zeros(source.records + 1, bool)
            wanted[mine] = True
            number = -1
            for number, record in enumerate(source.stream(verify=part.verify)):
                if number < source.records and wanted[number]:
                    yield int(shards[number]), record
            if number + 1 != source.records:
                raise changed_error(source.path)


def _identity(record: bytes) -> int:
    return _core.masked_crc32c(record) | (len(record) + OVERHEAD_BYTES) << 32


def _digest(identities: list[int]) -> int:
    both = np.array(identities, np.uint64)
    return record_digest(both.astype(np.uint32), (both >> np.uint64(32)).astype(np.int64))

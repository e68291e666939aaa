"""Copies of records into uncompressed shards: units of work that any executor can run, and run again.

The place of every frame is known before the first frame is copied. A unit therefore writes its frames at
fixed offsets of existing files and needs only names and numbers. It may be repeated, also by another process,
because it writes the same bytes to the same places.

Before a unit returns it reads back from the file what it wrote. The frames must lie at the planned offsets,
both checksums of every record must match, and the stored checksums must equal those of the records that were
read, in order. A wrong offset, a frame that was written twice, a lost write and a source that changed during
the copy are all found in this way.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import CorruptDataError
from shardkeep.files.durable import read_all, reading_from
from shardkeep.files.threads.groups import size_runs
from shardkeep.files.threads.work import Tick
from shardkeep.jobs.division.source import Source, changed_error
from shardkeep.jobs.division.targets import Place, Targets
from shardkeep.plan.permutation import mixed_words
from shardkeep.tfrecord.format.frame import OVERHEAD_BYTES

__all__ = [
    "Copied",
    "PlainPart",
    "StreamPart",
    "record_digest",
]

U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]

_FOOTER_BYTES = 4
_HUGE_BYTES = 16 << 20
_CHUNK_BYTES = 2 << 20
_HELD_BYTES = 32 << 20


@dataclass(frozen=True)
class PlainPart:
    """Consecutive records of an uncompressed file.

    Attributes
    ----------
    path : str
        The source.
    record : int
        Number of the first record.
    starts : ndarray of uint64, shape (records + 1,)
        Offsets of the frames, and of the end of the last one.
    shards : ndarray of int32, shape (records,)
        Shard of each record.
    places : dict
        Place of the first frame in each shard that occurs.
    block_bytes : int
        Size of one read.
    verify : bool
        True to check the checksums of the payloads.
    """

    path: str
    record: int
    starts: U64
    shards: I32
    places: dict[int, Place]
    block_bytes: int
    verify: bool

    @property
    def size_bytes(self) -> int:
        """Size of the frames."""
        return int(self.starts[-1] - self.starts[0])

    def copy(self, tick: Tick) -> Copied:
        """Copy the frames of a part to their shards unchanged, and verify them there.

        Raises
        ------
        CorruptRecordError
            A record of the source is damaged; path, record and offset refer to the source.
        CorruptDataError
            The source became shorter, or the shards do not have the records that were read.
        DurabilityError
            A shard cannot be written.
        """
        starts = self.starts.astype(np.int64)
        sizes = np.diff(starts)
        checksums = np.empty(len(sizes), np.uint32)
        ends = {shard: place.offset_bytes for shard, place in self.places.items()}
        with Targets(self.places) as targets, open(self.path, "rb", buffering=0) as file:
            source = file.fileno()
            for first, last in size_runs(sizes, self.block_bytes):
                length = int(starts[last] - starts[first])
                shards = self.shards[first:last]
                if length > _HUGE_BYTES and last - first == 1:
                    checksums[first] = _copy_huge(
                        source, int(starts[first]), length, targets, shards[0], ends, self
                    )
                    tick(length)
                    continue
                buffer = _buffer(length)
                _read_into(source, buffer, int(starts[first]), self.path)
                inside = starts[first : last + 1] - starts[first]
                checksums[first:last] = _footers(buffer, inside[1:])
                _scatter(buffer.data, inside, shards, targets, ends)
                tick(length)
            return _read_back(self, sizes, checksums, targets)


@dataclass(frozen=True)
class StreamPart:
    """All records of a source that is read in order; the attributes are those of `PlainPart`."""

    origin: Source
    sizes: I64
    shards: I32
    places: dict[int, Place]
    verify: bool

    @property
    def path(self) -> str:
        """Path of the source."""
        return self.origin.path

    @property
    def size_bytes(self) -> int:
        """Size of the frames."""
        return int(self.sizes.sum())

    def copy(self, tick: Tick) -> Copied:
        """Copy the records of a source that is read in order into uncompressed shards, and verify them there.

        Raises
        ------
        CorruptDataError, CorruptRecordError, TruncatedFileError, DurabilityError
            As for `PlainPart`.
        """
        checksums = np.empty(len(self.sizes), np.uint32)
        ends = {shard: place.offset_bytes for shard, place in self.places.items()}
        waiting: dict[int, list[bytes]] = {shard: [] for shard in self.places}
        held_bytes = 0
        with Targets(self.places) as targets:
            for count, (record, shard) in enumerate(_together(self), 1):
                checksums[count - 1] = _core.masked_crc32c(record)
                waiting[shard].append(record)
                held_bytes += len(record)
                if held_bytes >= _HELD_BYTES or count == len(self.sizes):
                    for one, records in waiting.items():
                        ends[one] += targets.write_records(one, records, ends[one])
                        records.clear()
                    tick(held_bytes)
                    held_bytes = 0
            return _read_back(self, self.sizes, checksums, targets)


@dataclass(frozen=True)
class Copied:
    """Result of a unit.

    Attributes
    ----------
    records, bytes : int
        Number of copied records, and the size of their frames.
    read, written : int
        Digests of the records that were read, and of those found in the shards (see `record_digest`).
    """

    records: int
    bytes: int
    read: int
    written: int


def record_digest(checksums: U32, sizes: I64) -> int:
    """Return the 64-bit sum of a hash of each record's stored checksum and size.

    It does not depend on the order of the records or on their division among files.
    """
    words = checksums.astype(np.uint64) | sizes.astype(np.uint64) << np.uint64(32)
    return int(mixed_words(words).sum(dtype=np.uint64))


# -- reading -------------------------------------------------------------------------------------------


def _buffer(size_bytes: int) -> npt.NDArray[np.uint8]:
    """Return the buffer of this thread, which is reused: fresh pages cost as much as the copy into them."""
    kept: npt.NDArray[np.uint8] | None = getattr(_of_thread, "buffer", None)
    if kept is None or len(kept) < size_bytes:
        kept = _of_thread.buffer = np.empty(size_bytes, np.uint8)
    return kept[:size_bytes]


_of_thread = threading.local()


def _read_into(fd: int, buffer: npt.NDArray[np.uint8], offset_bytes: int, path: str) -> None:
    with reading_from(path):
        done = read_all(fd, buffer.data, offset_bytes)
    if done < len(buffer):
        raise CorruptDataError(
            f"{path}: the file became shorter while it was read; wait until its writer has finished",
            path=path,
            offset_bytes=offset_bytes + done,
        )


def _footers(block: npt.NDArray[np.uint8], ends: I64) -> U32:
    """Return the four bytes before each of `ends` as little-endian numbers."""
    found = np.zeros(len(ends), np.uint32)
    for byte in range(_FOOTER_BYTES):
        found |= block[ends - _FOOTER_BYTES + byte].astype(np.uint32) << np.uint32(8 * byte)
    return found


def _together(part: StreamPart) -> Iterator[tuple[bytes, int]]:
    shards, sizes = part.shards.tolist(), part.sizes.tolist()
    count = 0
    for record in part.origin.stream(verify=part.verify):
        if count == len(sizes) or len(record) + OVERHEAD_BYTES != sizes[count]:
            raise changed_error(part.path)
        yield record, shards[count]
        count += 1
    if count < len(sizes):
        raise changed_error(part.path)


# -- writing -------------------------------------------------------------------------------------------


def _scatter(block: memoryview, inside: I64, shards: I32, targets: Targets, ends: dict[int, int]) -> None:
    """Write the frames of a block, which begin at the offsets `inside`, to their shards."""
    present = np.unique(shards)
    if len(present) == 1:
        shard = int(present[0])
        ends[shard] += targets.write(shard, block[: int(inside[-1])], ends[shard])
        return
    order = np.argsort(shards, kind="stable")
    bounds = [*np.searchsorted(shards[order], present, side="left").tolist(), len(order)]
    for shard, first, last in zip(present.tolist(), bounds, bounds[1:], strict=False):
        mine = order[first:last]
        slices = [
            block[begin:end]
            for begin, end in zip(inside[mine].tolist(), inside[mine + 1].tolist(), strict=True)
        ]
        ends[shard] += targets.write_slices(shard, slices, ends[shard])


def _copy_huge(
    source: int,
    offset_bytes: int,
    length: int,
    targets: Targets,
    shard: int,
    ends: dict[int, int],
    part: PlainPart,
) -> int:
    """Copy one long frame in pieces; return its stored checksum."""
    buffer, last = np.empty(_CHUNK_BYTES, np.uint8), b""
    done = 0
    while done < length:
        piece = buffer[: min(len(buffer), length - done)]
        _read_into(source, piece, offset_bytes + done, part.path)
        ends[shard] += targets.write(shard, piece.data, ends[shard])
        last = (last + piece[-_FOOTER_BYTES:].tobytes())[-_FOOTER_BYTES:]
        done += len(piece)
    return int.from_bytes(last, "little")


# -- verifying -----------------------------------------------------------------------------------------


def _read_back(part: PlainPart | StreamPart, sizes: I64, checksums: U32, targets: Targets) -> Copied:
    """Verify the frames of all shards; return the result of the unit."""
    written = 0
    for shard in part.places:
        mine = part.shards == shard
        written += _verified(part, shard, sizes[mine], checksums[mine], targets)
    return Copied(len(sizes), int(sizes.sum()), record_digest(checksums, sizes), written % 2**64)


def _verified(part: PlainPart | StreamPart, shard: int, sizes: I64, checksums: U32, targets: Targets) -> int:
    """Read back the frames of one shard, compare them with those that were read, and return their digest."""
    place = part.places[shard]
    expected = place.offset_bytes + np.concatenate(([0], np.cumsum(sizes)))
    try:
        found = _core.scan_part(
            place.temporary,
            offset_bytes=place.offset_bytes,
            record=place.record,
            until_bytes=int(expected[-1]),
            verify=part.verify,
        )
        same = np.array_equal(found.astype(np.int64), expected)
        there = _stored(targets.fd(shard), expected, place.path) if same else checksums[:0]
        if same and np.array_equal(there, checksums):
            targets.write_back(shard, place.offset_bytes, int(expected[-1]) - place.offset_bytes)
            return record_digest(there, sizes)
        reason = "the records differ" if same else "they are at other offsets"
    except CorruptDataError as error:
        reason = str(error)
    if isinstance(part, PlainPart):
        # The same damage is probably in the source; this scan then raises the error with its offset there.
        _core.scan_part(
            part.path,
            offset_bytes=int(part.starts[0]),
            record=part.record,
            until_bytes=int(part.starts[-1]),
            verify=part.verify,
        )
    raise CorruptDataError(
        f"{place.path}: the records written are not those read from {part.path} ({reason});"
        " that file changed during the copy, or memory or disk are faulty; check them, then try again",
        path=part.path,
    )


def _stored(fd: int, starts: I64, path: str) -> U32:
    """Return the stored checksum of each frame."""
    records = len(starts) - 1
    if int(starts[-1] - starts[0]) > records * (32 << 10):
        return np.array(
            [int.from_bytes(os.pread(fd, 4, end - 4), "little") for end in starts[1:].tolist()], np.uint32
        )
    found = np.empty(records, np.uint32)
    for first, last in size_runs(np.diff(starts), _CHUNK_BYTES):
        buffer = _buffer(int(starts[last] - starts[first]))
        _read_into(fd, buffer, int(starts[first]), path)
        found[first:last] = _footers(buffer, starts[first + 1 : last + 1] - starts[first])
    return found

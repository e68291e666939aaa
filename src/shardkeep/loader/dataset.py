"""The shards of a data set and what makes it the same data set on another machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkeep._core import crc32c
from shardkeep.errors import CorruptDataError, CorruptRecordError
from shardkeep.plan import ShardTable
from shardkeep.plan.receipt import Dataset
from shardkeep.tfrecord.index import load_indexes
from shardkeep.tfrecord.index_damaged import index_around_damage

__all__ = ["Shards", "digest_of", "open_shards"]


@dataclass(frozen=True, eq=False)
class Shards:
    """Shards with their indexes.

    Attributes
    ----------
    paths : tuple of str
        In the order in which their records are numbered.
    starts : list of ndarray of uint64
        For each shard its frame offsets in bytes, ``records + 1`` of them.
    table : ShardTable
        Global record numbers to (shard, record number in it), and back.
    identity : Dataset
        What states and receipts carry. Its fingerprint is of the names below their common folder and of the
        offset of every record, so it is the same on any machine that has the same files, and another one as
        soon as a file is added, left out, reordered or rewritten with records of other lengths.
    members : str
        Like the fingerprint, but the same for the same files in another order.
    holes : ndarray of uint64
        Global numbers, ascending, of what is counted as a record although none can be made out there.
    """

    paths: tuple[str, ...]
    starts: list[npt.NDArray[np.uint64]]
    table: ShardTable
    identity: Dataset
    members: str
    holes: npt.NDArray[np.uint64]

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Bytes of each shard."""
        return tuple(int(one[-1]) for one in self.starts)


def open_shards(paths: Sequence[str], *, on_corrupt: str = "raise", threads: int | None = None) -> Shards:
    """Find out where the records of the shards are: from their index files, or by a scan.

    Parameters
    ----------
    paths : sequence of str
    on_corrupt : {"raise", "skip", "repair"}
        With "skip" and "repair" a damaged header does not end the scan, see
        `shardkeep.tfrecord.index_damaged`; with "repair" a stretch without any record does.
    threads : int, optional

    Raises
    ------
    NotFoundError, FormatError, CorruptRecordError, TruncatedFileError
        As `shardkeep.tfrecord.build_index`.
    """
    holes = np.zeros(0, np.uint64)
    try:
        starts = [index.starts for index in load_indexes(paths, threads=threads)]
    except CorruptDataError:
        if on_corrupt == "raise":
            raise
        starts, holes = _around_damage(paths, on_corrupt)
    names = _names(paths)
    counts = [len(one) - 1 for one in starts]
    each = [_digest_of_shard(name, one) for name, one in zip(names, starts, strict=True)]
    identity = Dataset(
        fingerprint=digest_of(*each), records=sum(counts), shards=tuple(names), counts=tuple(counts)
    )
    return Shards(tuple(paths), starts, ShardTable(counts), identity, digest_of(*sorted(each)), holes)


def _around_damage(
    paths: Sequence[str], on_corrupt: str
) -> tuple[list[npt.NDArray[np.uint64]], npt.NDArray[np.uint64]]:
    """Return the offsets of each shard, and the global numbers of the holes."""
    starts, holes, first = [], [], 0
    for path in paths:
        index = index_around_damage(path)
        if index.holes and on_corrupt != "skip":
            record = index.holes[0]
            start, stop = (int(at) for at in index.starts[record : record + 2])
            raise CorruptRecordError(
                f"{path}: record {record} at byte {start}: {stop - start} bytes in which no record can be"
                ' made out, which is more than a flipped bit; on_corrupt="skip" leaves them out',
                path=path,
                record=record,
                offset_bytes=start,
            )
        starts.append(index.starts)
        holes += [first + record for record in index.holes]
        first += len(index.starts) - 1
    return starts, np.array(holes, np.uint64)


def digest_of(*texts: str) -> str:
    """Return 32 hexadecimal digits that stand for a row of texts without NUL."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def _digest_of_shard(name: str, starts: npt.NDArray[np.uint64]) -> str:
    # A CRC of the offsets: SHA-256 of all of them would be a third of the time to the first batch.
    offsets = crc32c(starts.astype("<u8", copy=False).view(np.uint8))
    said = f"{name}\0{len(starts) - 1}\0{starts[-1]}\0{offsets}"
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()


def _names(paths: Sequence[str]) -> list[str]:
    """Return the names below the folder that all paths share."""
    absolute = [os.path.abspath(path) for path in paths]
    common = os.path.commonpath([os.path.dirname(path) for path in absolute])
    return [os.path.relpath(path, common) for path in absolute]

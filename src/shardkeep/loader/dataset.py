"""Shards of a data set, their indexes, and the fingerprint that identifies the data set on any machine."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shardkeep._core import RecordPositions
from shardkeep.errors import CorruptDataError
from shardkeep.files.kinds.urls import display, is_url
from shardkeep.loader.remote.shards import RemoteShards
from shardkeep.plan import ShardTable
from shardkeep.plan.proof.contents import Dataset
from shardkeep.plan.proof.description import for_receipt
from shardkeep.tfrecord.index.damaged import hole_error, index_around_damage
from shardkeep.tfrecord.index.positions import load_positions

__all__ = ["Shards", "digest_of", "open_shards"]


@dataclass(frozen=True, eq=False)
class Shards:
    """Shards with their indexes.

    Attributes
    ----------
    paths : tuple of str
        Paths in the order in which their records are numbered.
    positions : RecordPositions
        Byte offsets of the frames of each shard, packed.
    table : ShardTable
        Map of global record numbers to (shard, record number in it), and back.
    identity : Dataset
        Identity of the data set in states and receipts, with its shards if they are few. Its fingerprint
        covers the names below the common folder and the offset of every record. It is the same on any machine
        with the same files, and differs if a file is added, removed, moved in the order, or rewritten with
        records of other lengths.
    members : str
        A fingerprint that does not depend on the order of the files.
    holes : ndarray of uint64
        Global record numbers, ascending, of byte ranges without a recognisable record, each of which counts
        as one.
    remote : RemoteShards or None
        The shards, if any is a remote object; then `paths` has URLs.
    """

    paths: tuple[str, ...]
    positions: RecordPositions
    table: ShardTable
    identity: Dataset
    members: str
    holes: npt.NDArray[np.uint64]
    remote: RemoteShards | None = None

    @property
    def local_paths(self) -> tuple[str, ...]:
        """Paths of the shards in this process; those of remote ones exist after they were fetched."""
        return self.paths if self.remote is None else self.remote.paths

    def fetched(self, number: int) -> str:
        """Return the path of a shard in this process, after it was fetched."""
        return self.paths[number] if self.remote is None else self.remote.fetch(number)

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """Size of each shard in bytes."""
        return tuple(self.positions.sizes_bytes.tolist())

    def described(self) -> Dataset:
        """Return the identity with the names, records and sizes of all shards."""
        return replace(
            self.identity,
            shards=tuple(_names(self.paths) if self.remote is None else self.remote.names()),
            counts=tuple(self.table.counts.tolist()),
            sizes=self.sizes_bytes,
        )


def open_shards(paths: Sequence[str], *, on_corrupt: str = "raise") -> Shards:
    """Return the shards with the offsets of their records, from index files or by a scan.

    Parameters
    ----------
    paths : sequence of str
        Paths of the shards, in order.
    on_corrupt : {"raise", "skip", "repair"}
        With "skip" and "repair" the scan continues after a damaged header, see
        `shardkeep.tfrecord.index.damaged`; with "repair" a byte range without a recognisable record is an
        error.

    Raises
    ------
    NotFoundError, FormatError, CorruptRecordError, TruncatedFileError
        A shard cannot be indexed, see `shardkeep.tfrecord.build_index`.
    """
    holes = np.zeros(0, np.uint64)
    remote = RemoteShards.find(paths) if any(map(is_url, paths)) else None
    try:
        positions = RecordPositions(remote.starts()) if remote is not None else load_positions(paths)
    except CorruptDataError:
        if on_corrupt == "raise":
            raise
        local = paths if remote is None else [remote.fetch(number) for number in range(len(paths))]
        positions, holes = _around_damage(local, on_corrupt)
    names = _names(paths) if remote is None else remote.names()
    counts = positions.records.tolist()
    offsets = zip(positions.sizes_bytes.tolist(), positions.checksums.tolist(), strict=True)
    each = [
        _digest_of_shard(name, records, size_bytes, checksum)
        for name, records, (size_bytes, checksum) in zip(names, counts, offsets, strict=True)
    ]
    shards = Shards(
        tuple(display(path) if is_url(path) else path for path in paths),
        positions,
        ShardTable(counts),
        Dataset(fingerprint=digest_of(*each), records=sum(counts)),
        digest_of(*sorted(each)),
        holes,
        remote,
    )
    return replace(shards, identity=for_receipt(shards.described()))


def _around_damage(paths: Sequence[str], on_corrupt: str) -> tuple[RecordPositions, npt.NDArray[np.uint64]]:
    """Return the offsets of each shard, and the global record numbers of the holes."""
    parts, holes, first = [], [], 0
    for path in paths:
        index = index_around_damage(path)
        if index.holes and on_corrupt != "skip":
            record = index.holes[0]
            start, stop = (int(at) for at in index.starts[record : record + 2])
            raise hole_error(path, record, start, stop - start)
        parts.append(RecordPositions([index.starts]))
        holes += [first + record for record in index.holes]
        first += len(index.starts) - 1
    return RecordPositions.joined(parts), np.array(holes, np.uint64)


def digest_of(*texts: str) -> str:
    """Return a digest of 32 hexadecimal digits of a sequence of texts without NUL."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def _digest_of_shard(name: str, records: int, size_bytes: int, checksum: int) -> str:
    # A CRC of the offsets, because their SHA-256 would take a third of the time to the first batch.
    text = f"{name}\0{records}\0{size_bytes}\0{checksum}"
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _names(paths: Sequence[str]) -> list[str]:
    """Return the names of the paths below their common folder."""
    absolute = [os.path.abspath(path) for path in paths]
    common = os.path.commonpath({os.path.dirname(path) for path in absolute})
    return [path[len(common) :].lstrip(os.sep) for path in absolute]

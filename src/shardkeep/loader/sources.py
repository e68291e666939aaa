"""Sources of records for a loader: one data set, or several mixed by weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shardkeep._core import RecordPositions
from shardkeep.errors import PlanError
from shardkeep.files.incomplete import Incomplete
from shardkeep.files.paths import PathsLike, path_list
from shardkeep.loader.batches import Batch, record_ids
from shardkeep.loader.dataset import Shards, digest_of, open_shards
from shardkeep.loader.remote.shards import RemoteShards
from shardkeep.plan import ShardTable, epoch_order
from shardkeep.plan.file_assignment import FileSet
from shardkeep.plan.mixture import MixedOrder, Mixture
from shardkeep.plan.order import EpochOrder
from shardkeep.plan.proof.contents import Dataset
from shardkeep.plan.proof.description import for_receipt
from shardkeep.tfrecord.index.together import request_together
from shardkeep.tfrecord.shard_names import expand_shards

__all__ = ["MixedSource", "ShardSource", "Source"]


class Source(Protocol):
    """The shards of a loader, and the order of their records."""

    mixture: Mixture | None

    @property
    def shards(self) -> Shards:
        """The shards with their indexes; scanned again after unpickling."""

    @property
    def positions(self) -> int:
        """Number of positions of an epoch."""

    def order(self, epoch: int) -> EpochOrder | MixedOrder:
        """Return the order of an epoch."""

    def row_ids(self, records: npt.NDArray[np.int64], rows: int) -> Batch:
        """Return the columns that ``with_ids=True`` adds to a batch."""

    def order_settings(self) -> dict[str, Any]:
        """Return the settings of the order, for a state."""

    def described(self) -> Dataset:
        """Return the identity of the data set with the names, records and sizes of all shards."""

    def describe(self) -> str:
        """Return the size of the source, for a loader's repr."""


class ShardSource:
    """One data set, read in the order of `shuffle` and `seed`.

    Parameters
    ----------
    paths, incomplete
        Arguments of `expand_shards`; the order of the shards is that in which their records are numbered.
    shuffle, seed
        Arguments of `epoch_order`.
    on_corrupt : {"raise", "skip", "repair"}
        Treatment of damaged records, see `open_shards`.
    """

    mixture: Mixture | None = None

    def __init__(
        self, paths: PathsLike, incomplete: Incomplete, *, shuffle: Any, seed: int, on_corrupt: str
    ) -> None:
        self._shuffle, self._seed, self._on_corrupt = shuffle, seed, on_corrupt
        given = path_list(paths)
        request_together(given)
        self._paths = expand_shards(given, incomplete)
        self._shards: Shards | None = open_shards(self._paths, on_corrupt=on_corrupt)
        self._files: FileSet | None = None
        self._fingerprint = self._shards.identity.fingerprint

    @property
    def shards(self) -> Shards:
        """The shards with their indexes; scanned again after unpickling."""
        if self._shards is None:
            found = open_shards(self._paths, on_corrupt=self._on_corrupt)
            if found.identity.fingerprint != self._fingerprint:
                raise PlanError(
                    f"{self._paths[0]} or another shard has changed since it was pickled: open the shards"
                    " again"
                )
            self._shards = found
        return self._shards

    @property
    def files(self) -> FileSet:
        """The shards as a `FileSet`, for ``shard_by="files"``."""
        if self._files is None:
            shards = self.shards
            self._files = FileSet(shards.table, shards.sizes_bytes, self._shuffle is not False, self._seed)
        return self._files

    @property
    def positions(self) -> int:
        """Number of positions of an epoch."""
        return self.shards.table.total

    def order(self, epoch: int) -> EpochOrder:
        """Return the order of an epoch."""
        return epoch_order(self.positions, shuffle=self._shuffle, seed=self._seed, epoch=epoch)

    def row_ids(self, records: npt.NDArray[np.int64], rows: int) -> Batch:
        """Return shard and index of each row."""
        return record_ids(self.shards.table, records, rows)

    def described(self) -> Dataset:
        """Return the identity of the data set with the names, records and sizes of all shards."""
        return self.shards.described()

    def order_settings(self) -> dict[str, Any]:
        """Return shuffle and seed."""
        return {"shuffle": self._shuffle, "seed": self._seed}

    def describe(self) -> str:
        """Return the number of records and shards."""
        records = "" if self._shards is None else f"{self.positions:,} records in "
        return f"{records}{len(self._paths)} shards"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": None, "_files": None}


class MixedSource:
    """Several data sets, read in the order of a mixture; their shards are concatenated."""

    def __init__(self, sources: Sequence[Source], mixture: Mixture) -> None:
        self._sources = tuple(sources)
        self.mixture: Mixture | None = mixture
        self._mixture = mixture
        self._shards: Shards | None = None

    @property
    def shards(self) -> Shards:
        """The shards of all data sets; scanned again after unpickling."""
        if self._shards is None:
            self._shards = _concatenated([source.shards for source in self._sources])
        return self._shards

    @property
    def positions(self) -> int:
        """Number of positions of an epoch of the mixture."""
        return self._mixture.records

    def order(self, epoch: int) -> MixedOrder:
        """Return the order of an epoch of the mixture."""
        return self._mixture.order(epoch)

    def row_ids(self, records: npt.NDArray[np.int64], rows: int) -> Batch:
        """Return source, shard and index of each row; shard and index as the source numbers them."""
        ids = record_ids(self.shards.table, records, rows)
        first_shards = np.cumsum([0, *(len(source.shards.table) for source in self._sources)])
        source = np.searchsorted(first_shards, ids["shard"], side="right") - 1
        shard = np.where(source < 0, -1, ids["shard"] - first_shards[source])
        return {"source": source.astype(np.int64), "shard": shard, "index": ids["index"]}

    def described(self) -> Dataset:
        """Return the identity of the mixture; the names of shards have the number of their data set."""
        return _joined(self.shards.identity, [source.described() for source in self._sources])

    def order_settings(self) -> dict[str, Any]:
        """Return the parts of the mixture and the end of its epochs."""
        parts = [[part.weight, part.shuffle, part.seed] for part in self._mixture.parts]
        return {"shuffle": False, "seed": 0, "mixture": parts, "stop": self._mixture.stop}

    def describe(self) -> str:
        """Return the number of data sets and of rows."""
        return f"{len(self._sources)} mixed data sets, {self.positions:,} rows per epoch"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": None}


def _concatenated(all_shards: Sequence[Shards]) -> Shards:
    """Concatenate the shards of several data sets."""
    identities = [shards.identity for shards in all_shards]
    identity = Dataset(
        fingerprint=digest_of(*(one.fingerprint for one in identities)),
        records=sum(one.records for one in identities),
    )
    if all(one.shards for one in identities):
        identity = for_receipt(_joined(identity, identities))
    firsts = np.cumsum([0, *(one.records for one in identities)])
    return Shards(
        tuple(path for shards in all_shards for path in shards.paths),
        RecordPositions.joined([shards.positions for shards in all_shards]),
        ShardTable(np.concatenate([shards.table.counts for shards in all_shards])),
        identity,
        digest_of(*sorted(shards.members for shards in all_shards)),
        np.concatenate(
            [shards.holes + np.uint64(first) for shards, first in zip(all_shards, firsts[:-1], strict=True)]
        ),
        RemoteShards.joined([(shards.remote, shards.paths) for shards in all_shards]),
    )


def _joined(identity: Dataset, parts: Sequence[Dataset]) -> Dataset:
    """Return a mixture with the shards of its parts; the names get the number of the part."""
    return replace(
        identity,
        shards=tuple(f"{i}:{name}" for i, part in enumerate(parts) for name in part.shards),
        counts=tuple(count for part in parts for count in part.counts),
        sizes=tuple(size for part in parts for size in part.sizes),
    )

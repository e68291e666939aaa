"""Several data sets behind one loader, drawn from by weight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep.errors import PlanError, SchemaError
from shardkeep.loader.batches import Batch, ids
from shardkeep.loader.dataset import Shards, digest_of
from shardkeep.loader.loader import Loader
from shardkeep.loader.place import Place
from shardkeep.plan import ShardTable
from shardkeep.plan.mixture import Mixture, Part, Stop, whole_weights
from shardkeep.plan.receipt import Dataset

__all__ = ["MixedLoader"]

_ALIKE = ("features", "batch_size", "world", "remainder", "epochs", "with_ids", "on_corrupt")


class MixedLoader(Loader):
    """What `Loader.mix` returns: the data sets' shards laid end to end, in the order of a mixture.

    All that a Loader promises holds: over an epoch of the mixture each position goes to one rank, states are
    independent of the number of ranks, and receipts prove it. ``with_ids`` also adds ``batch["source"]``
    (int64, the number of the data set; -1 on padded rows).

    Parameters
    ----------
    sources : sequence of (Loader, weight)
        Each with its own paths, shuffle and seed, and ``shard_by="records"``. What concerns the batches
        must be the same in all: features, `batch_size`, `world`, `remainder`, `epochs`, `with_ids`,
        `on_corrupt`.
        They are not iterated themselves, and their own places do not matter.
    stop : {"all", "first", "repeat"}
        Where an epoch of the mixture ends. "all": when every record of every data set was delivered, each
        once; one that is exhausted is left out, and the others keep their proportions. "first": when
        one would be needed that is exhausted. "repeat": when each was delivered once at least; one
        that is exhausted begins again, in the order of its next epoch. With the last two, each data
        set goes on in the next epoch of the mixture where it stopped, so over time all its
        records are delivered equally often.

    Raises
    ------
    PlanError
        Loaders that do not fit together, a weight that is not positive.

    Notes
    -----
    Rows are drawn one by one in the global order, as evenly as the weights allow: of any n rows in
    sequence, a data set of share p has n·p, give or take one for each data set. The pattern
    depends on the weights alone, so all ranks agree, and a state is again an epoch and a position.
    """

    def __init__(self, sources: Sequence[tuple[Loader, float]], *, stop: Stop = "all") -> None:
        loaders, weights = _checked(sources)
        # A mixture is loaded as its first data set is: batches, threads and what damaged records do.
        self.__dict__.update(loaders[0].__dict__)
        self.threads = max(loader.threads for loader in loaders)
        self.prefetch = max(loader.prefetch for loader in loaders)
        self._sources = loaders
        parts = zip(loaders, whole_weights(weights), strict=True)
        self.mixture: Mixture = Mixture(
            tuple(Part(one.shards.table.total, weight, one.shuffle, one.seed) for one, weight in parts), stop
        )
        self.shuffle, self.seed = False, 0
        self._shards = _end_to_end([loader.shards for loader in loaders])
        self._fingerprint = self._shards.identity.fingerprint
        self.turn = 0
        self._begin_receipt(Place())

    @property
    def shards(self) -> Shards:
        """The shards of all data sets; scanned again after unpickling."""
        if self._shards is None:
            self._shards = _end_to_end([loader.shards for loader in self._sources])
        return self._shards

    def ids(self, records: npt.NDArray[np.int64], rows: int) -> Batch:
        """Return source, shard and index of each row; the last two as the source numbers them."""
        found = ids(self.shards.table, records, rows)
        numbers = np.cumsum([0, *(len(one.shards.table) for one in self._sources)])
        source = np.searchsorted(numbers, found["shard"], side="right") - 1
        shard = np.where(source < 0, -1, found["shard"] - numbers[source])
        return {"source": source.astype(np.int64), "shard": shard, "index": found["index"]}

    def __repr__(self) -> str:
        return (
            f"<Loader of {len(self._sources)} mixed data sets, {self.positions:,} rows an epoch,"
            f" rank {self.world.rank} of {self.world.size}, epoch {self.epoch}, position {self.position:,}>"
        )

    def _basis(self) -> dict[str, Any]:
        mixture = self.mixture
        parts = [[part.weight, part.shuffle, part.seed] for part in mixture.parts]
        return {**super()._basis(), "mixture": parts, "stop": mixture.stop}


def _checked(sources: Sequence[tuple[Loader, float]]) -> tuple[list[Loader], list[float]]:
    pairs = list(sources)
    if not pairs:
        raise PlanError("nothing to mix: give pairs (loader, weight)")
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], Loader):
            raise PlanError(f"{pair!r:.80} is no pair (loader, weight)")
    loaders = [loader for loader, _ in pairs]
    for i, loader in enumerate(loaders):
        if loader.mixture is not None:
            raise PlanError(
                f"source {i} is a mixture itself: give its data sets with the products of the weights"
            )
        if loader.cycle_length is not None:
            raise PlanError(
                f'source {i} has shard_by="files": rows can be mixed with shard_by="records" only'
            )
        if loader.with_ids and loader.features is not None and "source" in loader.features:
            raise SchemaError(
                "feature 'source': a batch has a key of this name of its own; leave out with_ids=True"
            )
        for name in _ALIKE:
            first, mine = getattr(loaders[0], name), getattr(loader, name)
            if mine != first:
                raise PlanError(
                    f"sources 0 and {i} have different {name} ({first!r:.60} and {mine!r:.60}):"
                    " one batch has rows of all, so give them the same"
                )
    return loaders, [weight for _, weight in pairs]


def _end_to_end(all_shards: Sequence[Shards]) -> Shards:
    """Lay the shards of several data sets one after the other; names say which data set they are of."""
    identities = [one.identity for one in all_shards]
    identity = Dataset(
        fingerprint=digest_of(*(one.fingerprint for one in identities)),
        records=sum(one.records for one in identities),
        shards=tuple(f"{i}:{name}" for i, one in enumerate(identities) for name in one.shards),
        counts=tuple(count for one in identities for count in one.counts),
    )
    firsts = np.cumsum([0, *(one.records for one in identities)])
    return Shards(
        tuple(path for one in all_shards for path in one.paths),
        [starts for one in all_shards for starts in one.starts],
        ShardTable(identity.counts),
        identity,
        digest_of(*sorted(one.members for one in all_shards)),
        np.concatenate(
            [one.holes + np.uint64(first) for one, first in zip(all_shards, firsts[:-1], strict=True)]
        ),
    )

"""Batches for one rank: every record once an epoch over all ranks, resumable anywhere."""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from typing import Any

from shardkeep import _core
from shardkeep.errors import PlanError
from shardkeep.files.paths import PathsLike, expand
from shardkeep.loader.batches import check_names
from shardkeep.loader.dataset import Shards, open_shards
from shardkeep.loader.iterator import BatchIterator
from shardkeep.loader.place import Place
from shardkeep.loader.state import make_state, read_state
from shardkeep.plan import EpochPlan, epoch_order
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_EPOCH, checked_int
from shardkeep.plan.order import EpochOrder
from shardkeep.plan.receipt import Receipt
from shardkeep.tfrecord.features import Feature, describe
from shardkeep.world import World

__all__ = ["Loader"]


class Loader:
    """Batches of records for one rank of a training run.

    Over an epoch every record is delivered once across all ranks, whatever the sizes of the shards, the
    number of ranks, the batch size and the number of threads, and every rank makes the same number of
    steps. Nothing is communicated: each rank computes its part from the same plan.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord files without compression. All ranks must give the same ones in the same order (a
        pattern is sorted).
    features : mapping of str to FixedLen, VarLen or Image, optional
        Which features of the Examples become which columns. None delivers raw records.
    batch_size : int
        Rows that this rank takes at a step; the same on every rank.
    world : World, optional
        Which rank this is; `World.detect()` by default.
    shuffle : {False, "global", "blocks"}
        The order of an epoch: as stored; one permutation of all records; or blocks of consecutive records
        permuted and mixed within windows, which reads in long stretches. Each epoch has another order.
    seed : int
        Of the shuffle; the same on every rank.
    shard_by : {"records"}
        How the records are divided among the ranks.
    remainder : {"mask", "drop", "short"}
        The last step of an epoch, when the records do not fill it on all ranks: "mask" pads the batches and
        marks the real rows in ``batch["valid"]``; "drop" leaves the step out (an audit names what is
        dropped); "short" delivers smaller batches, perhaps of no row.
    epochs : int or None
        How many epochs one iteration runs through; None never ends. Iterating again goes on with the next
        ones.
    max_open_files : int, optional
        Lowers the descriptor budget of the whole process (`shardkeep.files.budget`).
    threads : int, optional
        That read, verify and decode; by default the processors of this process, shared among the ranks of
        its host.
    prefetch : int
        Batches that are read ahead. Memory is bounded by ``prefetch + 1`` batches and about a megabyte a
        thread.
    on_corrupt : {"raise"}
        What a damaged record does.
    with_ids : bool
        Add ``batch["shard"]`` and ``batch["index"]`` (int64, the number of the shard and of the record in it;
        -1 on padded rows).

    Raises
    ------
    NotFoundError
        A file or a pattern without a match.
    FormatError, CorruptRecordError, TruncatedFileError
        A shard that is no whole TFRecord file; when iterating, a damaged record, with its place.
    SchemaError
        A feature that a record lacks or has in another dtype or shape; both sides are shown.
    PlanError
        Arguments that do not fit, or a state of another data set.
    WorldError
        Rank and world size cannot be told.

    Notes
    -----
    A batch is a dict of arrays whose first axis are the rows: `FixedLen` (batch, *shape), `Image` (batch,
    height, width, channels), `VarLen` and raw records a `Ragged`. Padded rows are zero, empty strings, or
    empty. The arrays are the caller's: nothing is reused.

    **Order.** The same arguments give the same batches on every machine, whatever `threads` and `prefetch`.

    **Processes.** A loader may be made before or after `fork`, and pickled. Its threads start where it is
    iterated and end with the iterator. A forked child goes on from the same place on its own.

    **Errors.** After an error the place is still before the batch that failed.

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import FixedLen, ShardWriter
    >>> folder = tempfile.mkdtemp()
    >>> with ShardWriter(os.path.join(folder, "{shard}.tfrecord"), shards=3) as w:
    ...     for i in range(10):
    ...         w.write_example({"x": i})
    >>> loader = Loader(folder + "/*.tfrecord", {"x": FixedLen()}, batch_size=4, world=World(0, 1))
    >>> for batch in loader:
    ...     print(batch["x"], batch["valid"].sum())
    [0 3 6 9] 4
    [1 4 7 2] 4
    [5 8 0 0] 2
    """

    def __init__(
        self,
        paths: PathsLike,
        features: Mapping[str, Feature] | None = None,
        batch_size: int = 64,
        world: World | None = None,
        shuffle: Any = False,
        seed: int = 0,
        shard_by: str = "records",
        remainder: Any = "mask",
        epochs: int | None = 1,
        max_open_files: int | None = None,
        threads: int | None = None,
        prefetch: int = 2,
        on_corrupt: str = "raise",
        with_ids: bool = False,
    ) -> None:
        self.features = None if features is None else dict(features)
        self.batch_size = checked_int("batch_size", batch_size, 1, MAX_BATCH_SIZE)
        self.world = World.detect() if world is None else world
        self.shuffle = shuffle
        self.seed = seed
        self.remainder = remainder
        self.epochs = None if epochs is None else checked_int("epochs", epochs, 1, MAX_EPOCH)
        self.prefetch = checked_int("prefetch", prefetch, 1, 1_000_000)
        self.with_ids = bool(with_ids)
        self.threads = checked_int(
            "threads", _default_threads(self.world) if threads is None else threads, 1, 1024
        )
        for name, value, known in (("shard_by", shard_by, "records"), ("on_corrupt", on_corrupt, "raise")):
            if value != known:
                raise PlanError(f"{name}={value!r} is not known to this version: use {known!r}")
        if self.features is not None:
            if not self.features:
                raise PlanError("features={}: name at least one feature, or None for raw records")
            describe(self.features)
        check_names(self.features, masked=remainder == "mask", with_ids=self.with_ids)
        if max_open_files is not None:
            limit = checked_int("max_open_files", max_open_files, 1, 1 << 30)
            _core.set_descriptor_limit(min(limit, _core.descriptor_usage()["limit"]))
        self._paths = expand(paths)
        self._shards: Shards | None = open_shards(self._paths)
        self._fingerprint = self._shards.identity.fingerprint
        self.turn = 0
        self._place = Place()
        # Orders, seeds and remainders that do not exist are refused here, not at the first batch.
        self.order(0)
        self.plan(0)
        self._begin_receipt(self._place)

    @property
    def epoch(self) -> int:
        """The epoch of the last batch that was handed out; after a run, that of the next."""
        return self._place.epoch

    @property
    def position(self) -> int:
        """Records of the epoch that all ranks together have delivered."""
        return self._place.position

    # -- iterating --------------------------------------------------------------------------------------

    def __iter__(self) -> BatchIterator:
        """Go on from the place of the loader to the end of the current run of `epochs`.

        Ends any earlier iterator of this loader.
        """
        self.turn += 1
        if self.epochs is None and not self.plan(0).steps:
            raise PlanError("epochs=None would never end: there is no step in an epoch of these records")
        last_epoch = MAX_EPOCH if self.epochs is None else self._last_epoch(self.epochs)
        return BatchIterator(self, self.turn, last_epoch)

    def __len__(self) -> int:
        """Return how many steps are left of the current run; the same on every rank."""
        if self.epochs is None:
            raise PlanError("a loader with epochs=None has no length")
        whole = self._last_epoch(self.epochs) - self.epoch - 1
        start, made = self._place.taken_up
        return self.plan(start).steps - made + whole * self.plan(0).steps

    # -- state ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the place of the loader: after the last batch that was handed out.

        Returns
        -------
        dict
            JSON-able, a few hundred bytes, the same on every rank at the same step. It does not
            depend on the number of ranks, the batch size, threads or paths: any other loader of the
            same data set, shuffle and seed can go on from it.
        """
        return make_state(epoch=self.epoch, position=self.position, basis=self._basis())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the place of a state; nothing is read again on the way.

        Ends any iterator of this loader and begins a new receipt.

        Raises
        ------
        PlanError
            The state is of another data set, shuffle or seed; the message says which.
        """
        epoch, position = read_state(state, basis=self._basis())
        self.turn += 1
        self._begin_receipt(Place(epoch, position))

    def receipt(self) -> dict[str, Any]:
        """Return what this rank has delivered since the loader was made or given a state.

        Returns
        -------
        dict
            JSON-able; ranges, never lists of records. The receipts of all ranks (and, after a resume, of the
            runs before) are what `shardkeep audit` proves an epoch from. Store it with every
            checkpoint: only then does a run that goes back to the checkpoint leave no trace of the steps
            it repeats.

        Notes
        -----
        A copy of a loader (a pickled one, or the one of a forked child) begins a receipt of its own at its
        place: two copies that deliver the same records are found out. What was delivered before the copy
        was made is in the receipt of the original.
        """
        place = self.place()
        return Receipt(
            id=self._id,
            rank=self.world.rank,
            world_size=self.world.size,
            batch_size=self.batch_size,
            remainder=self.remainder,
            dataset=self.shards.identity,
            shuffle=self.shuffle,
            seed=self.seed,
            segments=place.segments,
        ).to_dict()

    # -- what the iterator needs --------------------------------------------------------------------------

    @property
    def shards(self) -> Shards:
        """The shards with their indexes; scanned again after unpickling."""
        if self._shards is None:
            found = open_shards(self._paths)
            if found.identity.fingerprint != self._fingerprint:
                raise PlanError(
                    f"{self._paths[0]} and its sister shards have changed since this loader was pickled: make"
                    " a new loader"
                )
            self._shards = found
        return self._shards

    def plan(self, start: int) -> EpochPlan:
        """Return the steps of an epoch that is taken up at position `start`."""
        return EpochPlan(self.shards.table.total, start, self.world.size, self.batch_size, self.remainder)

    def order(self, epoch: int) -> EpochOrder:
        """Return the order of an epoch."""
        return epoch_order(self.shards.table.total, shuffle=self.shuffle, seed=self.seed, epoch=epoch)

    def place(self) -> Place:
        """Return where the loader stands; in a forked child with a receipt of its own."""
        if self._pid != os.getpid():
            self._begin_receipt(self._place)
        return self._place

    def delivered(self, epoch: int, start: int, position: int) -> None:
        """Note that the batch which ends at `position` was handed out, of a stretch that began at `start`."""
        self._place = self.place().after_step(epoch, start, position)

    def finish_epochs(self, last_epoch: int) -> None:
        """Note that a run is over: the next iteration begins with `last_epoch`."""
        self._place = self.place().after_epochs(last_epoch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_receipt(self._place)

    def __repr__(self) -> str:
        return (
            f"<Loader of {self.shards.table.total:,} records in {len(self._paths)} shards,"
            f" rank {self.world.rank} of {self.world.size}, epoch {self.epoch}, position {self.position:,}>"
        )

    def _last_epoch(self, epochs: int) -> int:
        return (self.epoch // epochs + 1) * epochs

    def _basis(self) -> dict[str, Any]:
        return {
            "dataset": self.shards.identity.fingerprint,
            "records": self.shards.table.total,
            "shuffle": self.shuffle,
            "seed": self.seed,
        }

    def _begin_receipt(self, place: Place) -> None:
        self._id = uuid.uuid4().hex
        self._pid = os.getpid()
        self._place = place.without_history()


def _default_threads(world: World) -> int:
    processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(processors // max(world.local_size, 1), 1)

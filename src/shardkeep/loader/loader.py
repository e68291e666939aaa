"""Batches for one rank: every record once an epoch over all ranks, resumable anywhere."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import PlanError
from shardkeep.files.paths import PathsLike, expand
from shardkeep.loader.arguments import checked_cycle_length, default_threads
from shardkeep.loader.batches import Batch, check_names, ids
from shardkeep.loader.dataset import Shards, open_shards
from shardkeep.loader.iterator import BatchIterator
from shardkeep.loader.place import Place
from shardkeep.loader.state import make_state, read_state
from shardkeep.loader.steps import Step, file_steps_of, steps_of
from shardkeep.plan import Damage, EpochPlan, Segment, epoch_order
from shardkeep.plan.by_files import FilePlan
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_EPOCH, checked_int
from shardkeep.plan.division import FileSet, Leg, joined
from shardkeep.plan.mixture import MixedOrder, Mixture, Stop
from shardkeep.plan.order import EpochOrder
from shardkeep.plan.receipt import Receipt
from shardkeep.tfrecord.features import Feature, describe
from shardkeep.world import World

if TYPE_CHECKING:
    from shardkeep.loader.mixed import MixedLoader

__all__ = ["Loader"]

OnCorrupt = Literal["raise", "skip", "repair"]


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
    shard_by : {"records", "files"}
        How the records are divided among the ranks. "records" gives each rank its part of every step,
        whatever the shards. With "files" each rank reads whole shards, divided by bytes, each in its own
        order. `shuffle` may then be False (shards in the order of `paths`) or "blocks" (a rank's shards
        in another order in each epoch; which ones it reads stays the same). Ranks with fewer records
        go on with padded or empty batches; "drop" ends when the first rank cannot fill a batch.
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
    on_corrupt : {"raise", "skip", "repair"}
        What a damaged record does. "raise": it ends the iteration. "skip": it is left out, and the receipt
        names it. "repair": if single flipped bits are all that is wrong with it (one in its length, one in
        its content, or in their checksums) they are put right, and the receipt names it; otherwise "raise".
    with_ids : bool
        Add ``batch["shard"]`` and ``batch["index"]`` (int64, the number of the shard and of the record in it;
        -1 on padded rows).
    cycle_length : int, optional
        With ``shard_by="files"``: how many shards a rank reads at a time, one record of each in turn; 16 by
        default.

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

    **Damage.** A skipped record keeps its place in the plan, so every rank still makes the same number of
    steps, and states fit whatever `on_corrupt` is. With ``remainder="mask"`` its row is there, zero or empty,
    with ``valid`` False; with "short" and "drop" the batch has a row less (perhaps none: "drop" promises full
    batches of undamaged records only). `receipt` names each with its byte range, and `shardkeep audit` finds
    it: skipped is not delivered. A record that is whole but no Example, or whose image cannot be decoded, is
    damaged too; one that lacks a feature is not. A file that is written to while it is read is always an
    error. Where a header is damaged the scan goes on behind it (`shardkeep.tfrecord.index_damaged`): what
    cannot be made out counts as one record, and "repair" refuses it.

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
        on_corrupt: OnCorrupt = "raise",
        with_ids: bool = False,
        cycle_length: int | None = None,
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
            "threads", default_threads(self.world) if threads is None else threads, 1, 1024
        )
        if on_corrupt not in get_args(OnCorrupt):
            raise PlanError(f'on_corrupt={on_corrupt!r} is unknown: give "raise", "skip" or "repair"')
        self.on_corrupt = on_corrupt
        self.cycle_length = checked_cycle_length(shard_by, shuffle, cycle_length)
        if self.features is not None:
            if not self.features:
                raise PlanError("features={}: name at least one feature, or None for raw records")
            describe(self.features)
        check_names(self.features, masked=remainder == "mask", with_ids=self.with_ids)
        if max_open_files is not None:
            limit = checked_int("max_open_files", max_open_files, 1, 1 << 30)
            _core.set_descriptor_limit(min(limit, _core.descriptor_usage()["limit"]))
        self._paths = expand(paths)
        self._shards: Shards | None = open_shards(self._paths, on_corrupt=self.on_corrupt)
        self._fingerprint = self._shards.identity.fingerprint
        self._files: FileSet | None = None
        self.turn = 0
        # Orders, seeds and remainders that do not exist are refused here, not at the first batch.
        self.order(0)
        self.plan(Segment(0, 0, 0))
        self._begin_receipt(Place())

    @classmethod
    def mix(cls, sources: Sequence[tuple[Loader, float]], *, stop: Stop = "all") -> MixedLoader:
        """Return a loader that draws from several data sets by weight.

        Each data set has its own paths, shuffle and seed; what concerns the batches must be the same in all.
        `stop` says where an epoch of the mixture ends: "all" when every record was delivered once, "first"
        when one data set is exhausted, "repeat" when each was delivered once at least. See `MixedLoader`.

        Examples
        --------
        >>> import os, tempfile
        >>> from shardkeep.tfrecord import FixedLen, Writer
        >>> folder, loaders = tempfile.mkdtemp(), []
        >>> for name, first in ("ones", 1), ("tens", 10):
        ...     with Writer(os.path.join(folder, name)) as w:
        ...         for i in range(4):
        ...             w.write_example({"x": first * (i + 1)})
        ...     loaders.append(Loader(w.path, {"x": FixedLen()}, batch_size=3, world=World(0, 1)))
        >>> for batch in Loader.mix([(loaders[0], 2), (loaders[1], 1)]):
        ...     print(batch["x"][batch["valid"]])
        [ 1 10  2]
        [ 3 20  4]
        [30 40]
        """
        from shardkeep.loader.mixed import MixedLoader

        return MixedLoader(sources, stop=stop)

    mixture: Mixture | None = None

    @property
    def positions(self) -> int:
        """Positions of an epoch: its records, or the rows of a mixture."""
        return self.shards.table.total if self.mixture is None else self.mixture.records

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
        if self.epochs is None and not self.plan(Segment(0, 0, 0)).steps:
            raise PlanError("epochs=None would never end: there is no step in an epoch of these records")
        last_epoch = MAX_EPOCH if self.epochs is None else self._last_epoch(self.epochs)
        return BatchIterator(self, self.turn, last_epoch)

    def __len__(self) -> int:
        """Return how many steps are left of the current run; the same on every rank."""
        if self.epochs is None:
            raise PlanError("a loader with epochs=None has no length")
        whole = self._last_epoch(self.epochs) - self.epoch - 1
        stretch = self._place.stretch
        left = self.plan(stretch).steps - stretch.steps
        return left + (whole * self.plan(Segment(0, 0, 0)).steps if whole else 0)

    # -- state ------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return the place of the loader: after the last batch that was handed out.

        Returns
        -------
        dict
            JSON-able, a few hundred bytes, the same on every rank at the same step. It does not
            depend on the number of ranks, the batch size, threads or paths: any other loader of the
            same data set, shuffle and seed can go on from it. With ``shard_by="files"`` it has four numbers
            more for each number of ranks or batch size that the epoch has seen.
        """
        return make_state(epoch=self.epoch, position=self.position, history=self._legs(), basis=self._basis())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to the place of a state; nothing is read again on the way.

        Ends any iterator of this loader and begins a new receipt.

        Raises
        ------
        PlanError
            The state is of another data set, shuffle or seed; the message says which.
        """
        epoch, position, history = read_state(state, basis=self._basis())
        start = self.plan(Segment(epoch, position, 0, history)).start
        if start != position or (history and self.cycle_length is None):
            raise PlanError(
                f"the state has position={position}, but its history ends at {start}: was it edited?"
            )
        self.turn += 1
        self._begin_receipt(Place(epoch, position, history))

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
        identity = self.shards.identity
        if self.cycle_length is not None:
            identity = replace(identity, sizes=self.shards.sizes_bytes)
        return Receipt(
            id=self._id,
            rank=self.world.rank,
            world_size=self.world.size,
            batch_size=self.batch_size,
            remainder=self.remainder,
            dataset=identity,
            shuffle=self.shuffle,
            seed=self.seed,
            segments=place.segments,
            cycle_length=self.cycle_length,
            mixture=self.mixture,
            damage=place.damage,
        ).to_dict()

    # -- what the iterator needs --------------------------------------------------------------------------

    @property
    def shards(self) -> Shards:
        """The shards with their indexes; scanned again after unpickling."""
        if self._shards is None:
            found = open_shards(self._paths, on_corrupt=self.on_corrupt)
            if found.identity.fingerprint != self._fingerprint:
                raise PlanError(
                    f"{self._paths[0]} and its sister shards have changed since this loader was pickled: make"
                    " a new loader"
                )
            self._shards = found
        return self._shards

    def plan(self, stretch: Segment) -> EpochPlan | FilePlan:
        """Return the steps of an epoch from where a stretch of it begins."""
        if self.cycle_length is None:
            return EpochPlan(self.positions, stretch.start, self.world.size, self.batch_size, self.remainder)
        if self._files is None:
            shuffled = self.shuffle is not False
            self._files = FileSet(self.shards.table, self.shards.sizes_bytes, shuffled, self.seed)
        return FilePlan(
            self._files,
            self.world.size,
            self.batch_size,
            self.cycle_length,
            self.remainder,
            epoch=stretch.epoch,
            history=stretch.history,
        )

    def order(self, epoch: int) -> EpochOrder | MixedOrder:
        """Return the order of an epoch."""
        if self.mixture is not None:
            return self.mixture.order(epoch)
        return epoch_order(self.shards.table.total, shuffle=self.shuffle, seed=self.seed, epoch=epoch)

    def steps(self, stretch: Segment) -> Iterator[Step]:
        """Yield what this rank reads in the steps of a stretch, after those that are made."""
        plan = self.plan(stretch)
        if isinstance(plan, FilePlan):
            return file_steps_of(plan, self.world.rank, made=stretch.steps)
        return steps_of(plan, self.order(stretch.epoch), self.world.rank, made=stretch.steps)

    def ids(self, records: npt.NDArray[np.int64], rows: int) -> Batch:
        """Return what `with_ids` adds to a batch."""
        return ids(self.shards.table, records, rows)

    def place(self) -> Place:
        """Return where the loader stands; in a forked child with a receipt of its own."""
        if self._pid != os.getpid():
            self._begin_receipt(self._place.afresh(self._legs()))
        return self._place

    def delivered(self, stretch: Segment, position: int, damage: tuple[Damage, ...] = ()) -> None:
        """Note that the batch of a stretch which ends at `position` was handed out."""
        self._place = self.place().after_step(stretch, position, damage)

    def finish_epochs(self, last_epoch: int) -> None:
        """Note that a run is over: the next iteration begins with `last_epoch`."""
        self._place = self.place().after_epochs(last_epoch)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_shards": None, "_files": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_receipt(self._place.afresh(self._legs()))

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
            "members": self.shards.members,
            "shards": len(self.shards.table),
            "records": self.positions,
            "shard_by": "records" if self.cycle_length is None else "files",
            "shuffle": self.shuffle,
            "seed": self.seed,
        }

    def _legs(self) -> tuple[Leg, ...]:
        """Return how the epoch came to where the loader stands; nothing where positions say it all."""
        if self.cycle_length is None:
            return ()
        stretch = self._place.stretch
        mine = Leg(self.world.size, self.batch_size, self.cycle_length, stretch.steps)
        return joined([*stretch.history, mine])

    def _begin_receipt(self, place: Place) -> None:
        self._id = uuid.uuid4().hex
        self._pid = os.getpid()
        self._place = place

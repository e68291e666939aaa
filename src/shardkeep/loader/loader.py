"""Loader of batches for one rank of a training run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal

from shardkeep import _core
from shardkeep._summary import facts_html
from shardkeep.errors import PlanError
from shardkeep.files.incomplete import Incomplete
from shardkeep.files.paths import PathsLike
from shardkeep.loader.arguments import check_names, check_sources, checked_cycle_length, default_threads
from shardkeep.loader.batch_reader import BatchOptions
from shardkeep.loader.batches import Batch
from shardkeep.loader.cursor import Progress
from shardkeep.loader.iterator import BatchIterator, ReadAhead
from shardkeep.loader.numbered import NumberedBatches
from shardkeep.loader.place import Place
from shardkeep.loader.resumable import Resumable
from shardkeep.loader.sources import MixedSource, ShardSource
from shardkeep.plan import Remainder, Segment, Shuffle
from shardkeep.plan.checks import MAX_BATCH_SIZE, MAX_EPOCH, MAX_SEED, checked_int
from shardkeep.plan.mixture import Mixture, Part, Stop, whole_weights
from shardkeep.tfrecord.damage import OnCorrupt, check_on_corrupt
from shardkeep.tfrecord.example.features import Feature, describe
from shardkeep.world import World, checked_world

__all__ = ["Loader"]

# Attributes that all loaders of a mixture must share, since a batch has rows of all of them.
_SHARED_BY_A_MIXTURE = ("features", "batch_size", "world", "remainder", "epochs", "with_ids", "on_corrupt")


class Loader(Resumable):
    """Batches of records for one rank of a training run.

    Over an epoch every record is delivered once across all ranks, for any sizes of shards, number of ranks,
    batch size and number of threads, and every rank makes the same number of steps. The ranks do not
    communicate: each computes its part from the same plan.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord files without compression. All ranks must pass the same files in the same order (the matches
        of a pattern are sorted).
    features : mapping of str to FixedLen, VarLen or Image, optional
        Features of the Examples that become columns. None delivers raw records.
    batch_size : int
        Number of rows of a batch of this rank; must be the same on every rank.
    world : World, optional
        Rank and world size; `World.detect()` by default.
    shuffle : {False, "global", "blocks"}
        Order of an epoch: as stored; one permutation of all records; or blocks of consecutive records that
        are permuted and mixed within windows, which are read in long ranges. Each epoch has a different
        order.
    seed : int
        Seed of the shuffle; must be the same on every rank.
    shard_by : {"records", "files"}
        Division of the records among the ranks. "records" gives each rank a part of every step, for any
        shards. With "files" each rank reads whole shards, which are assigned by their size in bytes.
        `shuffle` may then be False (shards in the order of `paths`) or "blocks" (a rank's shards in a
        different order in each epoch; the shards of a rank stay the same). Ranks with fewer records make
        padded or empty batches at the end; with "drop" all ranks stop before the first step that some rank
        cannot fill.
    remainder : {"mask", "drop", "short"}
        Treatment of the last step of an epoch, if the records do not fill it on all ranks: "mask" pads the
        batches and marks real rows in ``batch["valid"]``; "drop" omits the step (an audit names the dropped
        records); "short" delivers smaller batches, possibly without rows.
    epochs : int or None
        Number of epochs of one iteration; None never ends. The next iteration continues with the following
        epochs.
    max_open_files : int, optional
        Lower limit for the descriptor budget of the whole process (`shardkeep.files.budget`).
    threads : int, optional
        Number of threads that read, verify and decode; by default the processors of this process, divided
        among the ranks of its host.
    prefetch : int
        Number of batches that are read ahead. Memory is bounded by ``prefetch + 1`` batches and about a
        megabyte per thread.
    on_corrupt : {"raise", "skip", "repair"}
        Treatment of a damaged record. "raise" ends the iteration with an error. "skip" omits the record, and
        the receipt names it. "repair" corrects single flipped bits (one in the length, one in the content, or
        in their checksums), and the receipt names the record; other damage is an error.
    with_ids : bool
        True to add ``batch["shard"]`` and ``batch["index"]`` (int64: number of the shard, and of the record
        in it; -1 on padded rows).
    cycle_length : int, optional
        With ``shard_by="files"``: number of shards that a rank reads at a time, one record of each in turn;
        16 by default.
    incomplete : {"refuse", "warn", "allow"}
        Treatment of a set of shards ``-00003-of-00008`` of which some are missing, or of sets of different
        sizes with one name: an error, a `RuntimeWarning`, or nothing. A shard that is not in `paths` is
        missing only if it is not in the folder of the others either.

    Raises
    ------
    NotFoundError
        A file does not exist, or a pattern has no match.
    FormatError, CorruptRecordError, TruncatedFileError
        A shard is not a complete TFRecord file; during iteration, a record is damaged.
    SchemaError
        A record lacks a feature, or has it with another dtype or shape; the message has both sides.
    PlanError
        Arguments do not fit together, a file is named twice, a set of shards is not whole, or a state belongs
        to another data set.
    WorldError
        Rank and world size cannot be determined.

    Notes
    -----
    A batch is a dict of arrays with rows on the first axis: `FixedLen` ``(batch, *shape)``, `Image` (batch,
    height, width, channels), `VarLen` and raw records a `Ragged`. Padded rows are zeros, empty strings, or
    empty. The arrays belong to the caller and are not reused.

    **Iteration.** An iteration begins at the position of the loader, and each batch moves it:
    ``next(iter(loader))`` consumes a batch, `peek` does not. The end of an epoch is the beginning of the next
    one, also if the iteration is stopped after ``len(loader)`` batches.

    **Order.** Equal arguments give equal batches on every machine, for any `threads` and `prefetch`.

    **Processes.** A loader may be created before or after `fork`, and may be pickled. Its threads start with
    the iteration and end with the iterator. A forked child continues from the same position, independently of
    its parent.

    **Errors.** After an error the loader is still at the position before the batch that failed.

    **Damage.** A skipped record keeps its position in the plan. Every rank therefore still makes the same
    number of steps, and a state fits any `on_corrupt`. With ``remainder="mask"`` its row is zero or empty and
    ``valid`` is False; with "short" and "drop" the batch has one row less, possibly none ("drop" promises
    full batches only without damage). `receipt` has the byte range of each skipped record, and `shardkeep
    audit` reports it as not delivered. A record that is not a valid message, or whose image cannot be
    decoded, is damaged as well; one that lacks a feature, or is another message than an Example, is not. A
    file that is written while it is read is always an error. After a damaged header the scan continues at
    the next valid record (`shardkeep.tfrecord.index.damaged`): the bytes between count as one record, which
    "repair" refuses.

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
        shuffle: Shuffle = False,
        seed: int = 0,
        shard_by: Literal["records", "files"] = "records",
        remainder: Remainder = "mask",
        epochs: int | None = 1,
        max_open_files: int | None = None,
        threads: int | None = None,
        prefetch: int = 2,
        on_corrupt: OnCorrupt = "raise",
        with_ids: bool = False,
        cycle_length: int | None = None,
        incomplete: Incomplete = "refuse",
    ) -> None:
        described = None if features is None else describe(features)
        self.features = None if features is None else dict(features)
        self.batch_size = checked_int("batch_size", batch_size, 1, MAX_BATCH_SIZE)
        self.world = checked_world(world)
        self.shuffle = shuffle
        self.seed = checked_int("seed", seed, 0, MAX_SEED)
        self.remainder = remainder
        self.epochs = None if epochs is None else checked_int("epochs", epochs, 1, MAX_EPOCH)
        self.prefetch = checked_int("prefetch", prefetch, 1, 1_000_000)
        self.with_ids = bool(with_ids)
        self.threads = checked_int(
            "threads", default_threads(self.world) if threads is None else threads, 1, 1024
        )
        check_on_corrupt(on_corrupt)
        self.on_corrupt = on_corrupt
        self.cycle_length = checked_cycle_length(shard_by, shuffle, cycle_length)
        if described == []:
            raise PlanError("features must not be empty; pass None for raw records")
        check_names(self.features, masked=remainder == "mask", with_ids=self.with_ids)
        if max_open_files is not None:
            limit = checked_int("max_open_files", max_open_files, 1, 1 << 30)
            _core.set_descriptor_limit(min(limit, _core.descriptor_usage()["limit"]))
        self._source = ShardSource(
            paths, incomplete, shuffle=shuffle, seed=self.seed, on_corrupt=self.on_corrupt
        )
        # Unknown values of shuffle and remainder are refused here, not at the first batch.
        self._source.order(0)
        self._schedule.plan(Segment(0, 0, 0))
        self._cursor = self._schedule.new_cursor()
        self._numbered: NumberedBatches | None = None

    @classmethod
    def mix(cls, sources: Sequence[tuple[Loader, float]], *, stop: Stop = "all") -> Loader:
        """Return a loader that draws rows from several data sets by weight.

        All guarantees of a loader hold: over an epoch of the mixture each position goes to one rank, a state
        fits any number of ranks, and receipts prove the epoch. ``with_ids`` also adds ``batch["source"]``
        (int64: number of the data set; -1 on padded rows).

        Parameters
        ----------
        sources : sequence of (Loader, weight)
            A loader and a positive weight for each data set. Each loader has its own paths, shuffle and seed,
            and ``shard_by="records"``; features, `batch_size`, `world`, `remainder`, `epochs`, `with_ids` and
            `on_corrupt` must be the same. The loaders are not iterated, and their positions are ignored.
        stop : {"all", "first", "repeat"}
            End of an epoch of the mixture. "all": every record of every data set was delivered once; an
            exhausted data set is left out, and the others keep their proportions. "first": the next row would
            come from an exhausted data set. "repeat": every record was delivered at least once; an exhausted
            data set begins again, in the order of its next epoch. With "first" and "repeat", each data set
            continues in the next epoch of the mixture where it stopped, so over time all its records are
            delivered equally often.

        Returns
        -------
        Loader
            A loader of the mixture, at its beginning.

        Raises
        ------
        PlanError
            The loaders do not fit together, or a weight is not positive.

        Notes
        -----
        Rows are drawn one by one in the global order, as evenly as the weights allow: of any n consecutive
        rows, a data set of share p has n·p, with a difference of at most one per data set. The pattern
        depends only on the weights, so all ranks agree, and a state is an epoch and a position.

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
        loaders, weights = check_sources(sources, Loader, _SHARED_BY_A_MIXTURE)
        parts = zip(loaders, whole_weights(weights), strict=True)
        mixture = Mixture(
            tuple(Part(one.positions, weight, one.shuffle, one.seed) for one, weight in parts), stop
        )
        mixed = copy.copy(loaders[0])
        mixed.threads = max(loader.threads for loader in loaders)
        mixed.prefetch = max(loader.prefetch for loader in loaders)
        mixed.shuffle, mixed.seed = False, 0
        mixed._source = MixedSource([loader._source for loader in loaders], mixture)
        mixed._cursor = mixed._schedule.new_cursor()
        mixed._numbered = None
        return mixed

    def __iter__(self) -> BatchIterator:
        """Iterate from the loader's position to the end of the current run of `epochs`.

        An earlier iterator of this loader ends.
        """
        last_epoch = self._end_of_run()
        return BatchIterator(self._options(), self._source, self._cursor, self._schedule.steps, last_epoch)

    def read_ahead(
        self, worker: int = 0, workers: int = 1, *, skip: int = 0
    ) -> Iterator[tuple[Batch, Place]]:
        """Iterate from the loader's position without moving it, for a queue before the training.

        The loader moves when `consume` is called with the place of a batch, so its position, state and
        receipt have the batches that were used, however many were read. The two may be in different
        processes: a copy of the loader reads, the loader consumes.

        Parameters
        ----------
        worker, workers : int
            Part of the steps: worker k of n takes the steps k, k + n, … of this rank. The batches of n
            workers, one of each in turn, are those of one iteration, so a state does not depend on `workers`.
        skip : int
            Number of the first batches of this part that are not read, for a worker that begins again.

        Yields
        ------
        batch : dict
            A batch, as the iteration of the loader delivers it.
        place : Place
            Place of the loader after this batch.

        Raises
        ------
        PlanError
            `worker` is not in the range of `workers`, `skip` is negative, or `epochs=None` without a step.

        Examples
        --------
        >>> import os, tempfile
        >>> from shardkeep.tfrecord import FixedLen, Writer
        >>> with Writer(os.path.join(tempfile.mkdtemp(), "x.tfrecord")) as w:
        ...     for i in range(8):
        ...         w.write_example({"x": i})
        >>> loader = Loader(w.path, {"x": FixedLen()}, batch_size=2, world=World(0, 1))
        >>> queue = list(loader.read_ahead())
        >>> batch, place = queue[0]
        >>> loader.consume(place)
        >>> len(queue), loader.position
        (4, 2)
        """
        workers = checked_int("workers", workers, 1, 1_000_000)
        worker = checked_int("worker", worker, 0, workers - 1)
        first = worker + workers * checked_int("skip", skip, 0, 1 << 40)
        progress, last_epoch = self._cursor.fork().progress, self._end_of_run()
        return ReadAhead(
            self._options(), self._source, progress, self._schedule.steps, last_epoch, first, workers
        )

    def batch(self, step: int, epoch: int | None = None) -> Batch:
        """Return a batch by its number without moving the loader.

        Consecutive steps are read ahead; another order costs a start of the threads each time. May be called
        from several threads.

        Parameters
        ----------
        step : int
            Number of the step, from the beginning of the epoch. In the loader's own epoch, if it was resumed
            by `load_state_dict`, from the position of the state.
        epoch : int, optional
            Number of the epoch; that of the loader by default.

        Returns
        -------
        dict
            A batch, as the iteration delivers it.

        Raises
        ------
        PlanError
            The epoch does not have this step.
        """
        return self._read_step(step, epoch)[0]

    def _read_step(self, step: int, epoch: int | None) -> tuple[Batch, Place]:
        """Return a batch by its number, and its place for `consume`."""
        segment = self._next_segment()
        if epoch is not None and epoch != segment.epoch:
            segment = Segment(checked_int("epoch", epoch, 0, MAX_EPOCH), 0, 0)
        step = checked_int("step", step, 0, self._schedule.plan(segment).steps - 1)
        if self._numbered is None:
            # Of a copy: a cycle of references would keep the threads alive after the last one to this loader.
            self._numbered = NumberedBatches(copy.copy(self)._read_epoch)
        return self._numbered.batch(replace(segment, steps=step))

    def peek(self) -> Batch:
        """Return the next batch without consuming it, for shapes and dtypes.

        Position, receipt and a running iterator stay as they are: the iteration delivers an equal batch next,
        for which the records are read again.

        Returns
        -------
        dict
            A batch, as the iteration delivers it.

        Raises
        ------
        PlanError
            An epoch of these records has no step.
        """
        return next(self._read_epoch(self._next_segment(), steps=1))[0]

    def __len__(self) -> int:
        """Return the number of steps that are left of the current run, equal on every rank.

        At the end of a run it is that of the next one. Use `steps_per_epoch` for the steps of a whole epoch.
        """
        if self.epochs is None:
            raise TypeError(
                "a Loader with epochs=None has no length; steps_per_epoch is the number of steps of one epoch"
            )
        whole_epochs = self._last_epoch(self.epochs) - self.epoch - 1
        return self.steps_left + (whole_epochs * self.steps_per_epoch if whole_epochs else 0)

    def __bool__(self) -> bool:
        """Return True: a Loader is an object with batches to come, also where it has no length."""
        return True

    def __repr__(self) -> str:
        return (
            f"<Loader of {self._source.describe()}, rank {self.world.rank} of {self.world.size},"
            f" epoch {self.epoch}, position {self.position:,}>"
        )

    def _repr_html_(self) -> str:
        return facts_html(self, "world", "batch_size", "epoch", "position", of=self._source.describe())

    def _end_of_run(self) -> int:
        if self.epochs is not None:
            return self._last_epoch(self.epochs)
        if not self.steps_per_epoch:
            raise PlanError("epochs=None would never end, since an epoch of these records has no step")
        return MAX_EPOCH

    def _next_segment(self) -> Segment:
        """Return the segment of the next step; raise if an epoch has no step."""
        if not self.steps_per_epoch:
            raise PlanError("an epoch of these records has no step, so it has no batch")
        return self._cursor.current().segment

    def _read_epoch(self, segment: Segment, steps: int | None = None) -> ReadAhead:
        """Return the batches of the rest of an epoch."""
        schedule = self._schedule
        progress = Progress(segment.epoch, schedule.position(segment), current=segment)
        return ReadAhead(
            self._options(),
            self._source,
            progress,
            lambda segment: islice(schedule.steps(segment), steps),
            segment.epoch + 1,
            by_number=True,
        )

    def _options(self) -> BatchOptions:
        return BatchOptions(
            self.features,
            self.batch_size,
            self.remainder,
            self.with_ids,
            self.on_corrupt,
            self.threads,
            self.prefetch,
            self.world,
        )

"""Position of a loader in its run: epochs, states and receipts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shardkeep.errors import PlanError
from shardkeep.loader.cursor import Bookmark, Cursor, Progress
from shardkeep.loader.place import Place
from shardkeep.loader.schedule import Schedule
from shardkeep.loader.sources import Source
from shardkeep.loader.state import make_state, read_state
from shardkeep.plan import Segment
from shardkeep.plan.checks import MAX_EPOCH, checked_int
from shardkeep.plan.mixture import Mixture
from shardkeep.plan.proof.description import DescribedReceipt, describe
from shardkeep.plan.proof.receipt import Receipt
from shardkeep.world import World

__all__ = ["Resumable"]


class Resumable:
    """Base class of `Loader`: its position, and all that reads or changes it apart from the iteration."""

    world: World
    batch_size: int
    remainder: Any
    cycle_length: int | None
    _source: Source
    _cursor: Cursor

    @property
    def _schedule(self) -> Schedule:
        return Schedule(self._source, self.world, self.batch_size, self.remainder, self.cycle_length)

    @property
    def mixture(self) -> Mixture | None:
        """The mixture of a loader that `mix` returned, otherwise None."""
        return self._source.mixture

    @property
    def positions(self) -> int:
        """Number of positions of an epoch: its records, or the rows of a mixture."""
        return self._source.positions

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of a whole epoch, equal on every rank."""
        return self._schedule.steps_per_epoch

    @property
    def step(self) -> int:
        """Number of the next batch for `Loader.batch`: 0 at the beginning of an epoch and of a state."""
        return self._cursor.progress.segment.steps

    @property
    def steps_left(self) -> int:
        """Number of steps that are left of the epoch, equal on every rank."""
        segment = self._cursor.progress.segment
        return self._schedule.plan(segment).steps - segment.steps

    @property
    def epoch(self) -> int:
        """The epoch of the next batch: after the last batch of an epoch, the following epoch."""
        return self._cursor.progress.epoch

    @property
    def position(self) -> int:
        """Number of records of `epoch` that all ranks together have delivered; 0 after the last batch."""
        return self._cursor.progress.position

    def set_epoch(self, epoch: int) -> None:
        """Move the loader to the beginning of an epoch; does nothing in that epoch.

        A loop that calls ``set_epoch(epoch)`` before each epoch therefore also continues in mid-epoch after
        `load_state_dict`. To repeat an epoch that has begun, call `reset`.

        The iterator of this loader ends if it moves. The receipt continues in a later epoch, so an audit
        finds the records that were passed over. For an earlier epoch a new receipt begins, as after
        `load_state_dict`.

        Parameters
        ----------
        epoch : int
            Number of the epoch, from 0; must be the same on every rank.

        Raises
        ------
        PlanError
            `epoch` is not an int of at least 0.
        """
        epoch = checked_int("epoch", epoch, 0, MAX_EPOCH)
        if epoch != self.epoch:
            self._cursor.move_to_epoch(epoch)

    def reset(self) -> None:
        """Move the loader to the beginning of its epoch, which it then delivers again.

        After the last batch of an epoch, where the next epoch begins, this does nothing. Otherwise the
        iterator of this loader ends, and a new receipt begins, as after `load_state_dict`: store `receipt`
        before, if the batches that were delivered so far count.
        """
        if self.position:
            self._cursor.move_to_epoch(self.epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the loader after the last delivered batch.

        Returns
        -------
        dict
            A few hundred bytes of types that JSON supports, equal on every rank at the same step. The state
            does not depend on the number of ranks, the batch size, threads or paths: any other loader of the
            same data set, shuffle and seed can resume from it. With ``shard_by="files"`` it has four more
            numbers for each number of ranks or batch size that the epoch has seen.
        """
        return make_state(
            epoch=self.epoch,
            position=self.position,
            history=self._cursor.history(),
            basis=self._schedule.basis(),
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move the loader to the position of a state, without reading records.

        The iterator of this loader ends, and a new receipt begins.

        Parameters
        ----------
        state : mapping
            The result of `state_dict` of any rank, also after a round trip through JSON.

        Raises
        ------
        PlanError
            The state belongs to another data set, shuffle or seed; the message has the difference.
        """
        epoch, position, history = read_state(state, basis=self._schedule.basis())
        plan = self._schedule.plan(Segment(epoch, position, 0, history))
        if plan.start != position or (history and self.cycle_length is None):
            raise PlanError(
                f"the state has position={position}, but its history ends at {plan.start}: was it edited?"
            )
        progress = Progress(epoch, position, history)
        if position and not plan.steps:
            # The end of the epoch: from an earlier version, or the rest does not fill a step here.
            progress = progress.after_epochs(epoch + 1)
        self._cursor.move_to(progress)

    def bookmark(self) -> Bookmark:
        """Return the place of the loader in this process, for `rewind`.

        Returns
        -------
        Bookmark
        """
        return self._cursor.bookmark()

    def rewind(self, bookmark: Bookmark) -> None:
        """Return to an earlier place, as a framework does after a pass that only inspected batches.

        The iterator of this loader ends. The receipt is again that of the place; but if `receipt` was called
        since, those batches count, and a new receipt begins as after `load_state_dict`.

        Parameters
        ----------
        bookmark : Bookmark
            Result of `bookmark` of this loader.
        """
        self._cursor.rewind(bookmark)

    def consume(self, place: Place) -> None:
        """Move the loader over a batch that was read ahead.

        The position, the state and the receipt then have this batch. An iterator of the loader itself ends.

        Parameters
        ----------
        place : Place
            The place that came with the batch from `read_ahead`, here or in another process. The places are
            consumed in the order of the steps, one by one.

        Raises
        ------
        PlanError
            The batch is not the next one of this loader.
        """
        progress = self._cursor.current()
        if (place.epoch, place.start) != (progress.epoch, progress.position):
            raise PlanError(
                f"the batch of epoch {place.epoch}, position {place.start} is not the next one of this"
                f" loader, which is at epoch {progress.epoch}, position {progress.position}: consume each"
                " batch once, in the order of the steps"
            )
        self._cursor.generation += 1
        self._cursor.finish_step(progress.segment, place.stop, place.damage, place.next_epoch)

    def receipt(self) -> dict[str, Any]:
        """Return the receipt of what this rank has delivered since its loader was made or loaded a state.

        Returns
        -------
        dict
            Ranges of positions as types that JSON supports. `shardkeep audit` proves an epoch from the
            receipts of all ranks and, after a resume, of the runs before. Store the receipt with every
            checkpoint; then a run that returns to the checkpoint leaves no trace of the steps that it
            repeats. The receipt of a data set of many shards refers to the shards by a fingerprint: a
            `WorkerFile` stores their description once in the run folder, elsewhere store `describe_data`.

        Notes
        -----
        A copy of a loader (by pickle, `copy` or `fork`) begins its own receipt at its position, so an audit
        notices two copies that deliver the same records. Deliveries before the copy are in the receipt of the
        original.
        """
        progress = self._cursor.report()
        order, dataset = self._source.order_settings(), self._source.shards.identity
        if self.cycle_length is None:
            dataset = replace(dataset, sizes=())
        receipt = Receipt(
            id=self._cursor.receipt_id,
            rank=self.world.rank,
            world_size=self.world.size,
            batch_size=self.batch_size,
            remainder=self.remainder,
            dataset=dataset,
            shuffle=order["shuffle"],
            seed=order["seed"],
            segments=progress.segments,
            cycle_length=self.cycle_length,
            mixture=self.mixture,
            damage=progress.damage,
        ).to_dict()
        return receipt if dataset.shards else DescribedReceipt(receipt, self._source.described)

    def describe_data(self) -> dict[str, Any]:
        """Return the description of the data set, to which receipts over many shards refer.

        It is the same on every rank and in every run over the same shards. Save it once as a JSON file in the
        folder of the receipts, or pass it with the receipts to `shardkeep.plan.audit`. A `WorkerFile` stores
        it with the first commit.

        Returns
        -------
        dict
            Name, records and size of each shard, as types that JSON supports.
        """
        return describe(self._source.described())

    def _last_epoch(self, epochs: int) -> int:
        return (self.epoch // epochs + 1) * epochs

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_numbered": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._cursor = self._cursor.fork()

"""Progress of a loader: its position, and the segments that it has delivered for its receipt."""

from __future__ import annotations

import os
import uuid
from dataclasses import replace
from typing import NamedTuple

from shardkeep.plan.file_assignment import HistoryEntry, merge_history
from shardkeep.plan.proof.contents import Segment
from shardkeep.plan.proof.damage import Damage

__all__ = ["Bookmark", "Cursor", "Progress"]


class Progress(NamedTuple):
    """Position of a loader in its run, and what it has delivered since its receipt began.

    A signal handler may raise between any two instructions. A progress is therefore immutable, and each step
    makes a new one.

    Attributes
    ----------
    epoch : int
    position : int
        Number of records of the epoch that all ranks together have delivered.
    history : tuple of HistoryEntry
        Earlier steps of the epoch, if the receipt began at `position` and ranks read whole files.
    finished : tuple of Segment
        Segments that were delivered since the receipt began, without `current`.
    current : Segment or None
        The current segment. A resumed iteration continues it, so that ranks still agree on their steps after
        one of them was interrupted.
    damage : tuple of Damage
        Records that were skipped or repaired since the receipt began.
    """

    epoch: int = 0
    position: int = 0
    history: tuple[HistoryEntry, ...] = ()
    finished: tuple[Segment, ...] = ()
    current: Segment | None = None
    damage: tuple[Damage, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All segments, in the order of delivery."""
        return self.finished if self.current is None else (*self.finished, self.current)

    @property
    def segment(self) -> Segment:
        """The segment that the next step of `epoch` continues or begins."""
        if self.current is not None and self.current.epoch == self.epoch:
            return self.current
        return Segment(self.epoch, self.position, 0, self.history)

    def after_step(self, segment: Segment, position: int, damage: tuple[Damage, ...] = ()) -> Progress:
        """Return the progress after one more step of `segment`, which ends at `position`."""
        progress = self._after_epochs_before(segment.epoch)
        current = progress.current
        if current is None or (current.epoch, current.start) != (segment.epoch, segment.start):
            progress = progress._with_current(segment)
            current = progress.current
            assert current is not None
        # Without `replace`, because this runs for each batch.
        current = Segment(current.epoch, current.start, current.steps + 1, current.history)
        return Progress(segment.epoch, position, (), progress.finished, current, progress.damage + damage)

    def after_epochs(self, epoch: int) -> Progress:
        """Return the progress at the beginning of `epoch`, after delivery of all epochs before it."""
        return self._after_epochs_before(epoch)._replace(epoch=epoch, position=0, history=())

    def with_new_receipt(self, history: tuple[HistoryEntry, ...]) -> Progress:
        """Return the same position with a new receipt; `history` has the steps of the epoch so far."""
        return Progress(self.epoch, self.position, history)

    def _after_epochs_before(self, epoch: int) -> Progress:
        # An epoch without a step, or a dropped end of an epoch, needs a segment too: without it the receipt
        # would prove nothing about that epoch.
        progress = self
        for passed in range(self.epoch, epoch):
            if progress.current is None or progress.current.epoch != passed:
                segment = self.segment if passed == self.epoch else Segment(passed, 0, 0)
                progress = progress._with_current(segment)
        return progress

    def _with_current(self, segment: Segment) -> Progress:
        return self._replace(finished=self.segments, current=replace(segment, steps=0))


class Bookmark(NamedTuple):
    """Place of a loader that it can return to: its receipt there, and the steps of the epoch so far."""

    receipt_id: str
    progress: Progress
    history: tuple[HistoryEntry, ...]


class Cursor:
    """The progress of one loader in one process, shared with its iterator.

    Parameters
    ----------
    assignment : HistoryEntry or None
        World size, batch size and cycle length, if ranks read whole files.
    progress : Progress, optional
        Initial progress.

    Attributes
    ----------
    progress : Progress
    receipt_id : str
        Id of the receipt; copies of a loader have different ids.
    generation : int
        Number that each new iterator and each loaded state increments; an iterator of an older generation has
        ended.
    """

    def __init__(self, assignment: HistoryEntry | None, progress: Progress | None = None) -> None:
        self._assignment = assignment
        self.generation = 0
        self._begin_receipt(progress or Progress())

    def history(self) -> tuple[HistoryEntry, ...]:
        """Return the steps of the current epoch so far; empty unless ranks read whole files."""
        if self._assignment is None:
            return ()
        segment = self.progress.segment
        return merge_history([*segment.history, replace(self._assignment, steps=segment.steps)])

    def fork(self) -> Cursor:
        """Return a cursor at the same position with its own receipt."""
        return Cursor(self._assignment, self.progress.with_new_receipt(self.history()))

    def current(self) -> Progress:
        """Return the progress; in a forked child, begin a new receipt first."""
        if self._pid != os.getpid():
            self._begin_receipt(self.progress.with_new_receipt(self.history()))
        return self.progress

    def report(self) -> Progress:
        """Return the progress for a receipt."""
        progress = self.current()
        self._reported = progress.epoch, progress.position
        return progress

    def bookmark(self) -> Bookmark:
        """Return the place for `rewind`."""
        return Bookmark(self.receipt_id, self.current(), self.history())

    def rewind(self, to: Bookmark) -> None:
        """Return to an earlier place, and end the iterator.

        The receipt loses the steps since. If one with some of these steps may be stored, a new receipt begins
        instead, so that an audit finds both deliveries.
        """
        self.current()
        self.generation += 1
        progress = to.progress
        if self.receipt_id == to.receipt_id and self._reported <= (progress.epoch, progress.position):
            self.progress = progress
        else:
            self._begin_receipt(progress.with_new_receipt(to.history))

    def move_to(self, progress: Progress) -> None:
        """Begin a new receipt at a loaded state, and end the iterator."""
        self.generation += 1
        self._begin_receipt(progress)

    def move_to_epoch(self, epoch: int) -> None:
        """Move to the beginning of an epoch, and end the iterator.

        The receipt continues in a later epoch. Otherwise a new one begins, since a receipt cannot have steps
        twice.
        """
        progress = self.current()
        self.generation += 1
        if epoch > progress.epoch:
            self.progress = progress._replace(epoch=epoch, position=0, history=())
        else:
            self._begin_receipt(Progress(epoch))

    def finish_step(
        self, segment: Segment, position: int, damage: tuple[Damage, ...], next_epoch: int
    ) -> None:
        """Record that the batch of `segment` that ends at `position` was delivered.

        The end of an epoch and the beginning of the next one are the same place: after the last step of
        `segment`, `next_epoch` is a later one.
        """
        progress = self.current().after_step(segment, position, damage)
        self.progress = progress if next_epoch == segment.epoch else progress.after_epochs(next_epoch)

    def finish_epochs(self, epoch: int) -> None:
        """Record the end of a run without a step; the next iteration begins with `epoch`."""
        self.progress = self.current().after_epochs(epoch)

    def _begin_receipt(self, progress: Progress) -> None:
        self.receipt_id = uuid.uuid4().hex
        self._pid = os.getpid()
        self._reported = (0, 0)
        self.progress = progress

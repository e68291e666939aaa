"""Where a loader stands, and what it has delivered to get there: changed in one assignment, or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from shardkeep.plan.damage import Damage
from shardkeep.plan.division import Leg
from shardkeep.plan.receipt import Segment

__all__ = ["Place"]


class Place(NamedTuple):
    """The place of a loader in its run.

    A signal handler may raise between any two instructions, so a place is never changed: each step makes the
    next one.

    Attributes
    ----------
    epoch : int
    position : int
        Records of the epoch that all ranks together have delivered.
    history : tuple of Leg
        How the epoch came to `position`, when that is where the receipt began and whole files are read.
    finished : tuple of Segment
        What was delivered since the receipt began, without `current`.
    current : Segment or None
        The stretch under way. An iteration that is taken up again goes on with it, so that ranks of which
        one was interrupted still agree on their steps.
    damage : tuple of Damage
        What was skipped or repaired since the receipt began.
    """

    epoch: int = 0
    position: int = 0
    history: tuple[Leg, ...] = ()
    finished: tuple[Segment, ...] = ()
    current: Segment | None = None
    damage: tuple[Damage, ...] = ()

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All stretches, in the order of delivery."""
        return self.finished if self.current is None else (*self.finished, self.current)

    @property
    def stretch(self) -> Segment:
        """The stretch to go on with in `epoch`: where its plan begins, and how many steps of it are made."""
        if self.current is not None and self.current.epoch == self.epoch:
            return self.current
        return Segment(self.epoch, self.position, 0, self.history)

    def after_step(self, stretch: Segment, position: int, damage: tuple[Damage, ...] = ()) -> Place:
        """Return the place after one more step of `stretch`, which ends at `position`."""
        place = self._through(stretch.epoch)
        here = place.current
        if here is None or (here.epoch, here.start) != (stretch.epoch, stretch.start):
            place = place._begun(stretch)
            here = place.current
            assert here is not None
        # Written out, since this is done for each batch.
        current = Segment(here.epoch, here.start, here.steps + 1, here.history)
        return Place(stretch.epoch, position, (), place.finished, current, place.damage + damage)

    def after_epochs(self, epoch: int) -> Place:
        """Return the place at the beginning of `epoch`, all before it being delivered."""
        return self._through(epoch)._replace(epoch=epoch, position=0, history=())

    def afresh(self, history: tuple[Leg, ...]) -> Place:
        """Return the same place as a new receipt begins with it, `history` being how the epoch came there."""
        return Place(self.epoch, self.position, history)

    def _through(self, epoch: int) -> Place:
        # An epoch without a step, or the rest of one that nothing fits into, is delivered too: a receipt that
        # is silent about it proves nothing.
        place = self
        for passed in range(self.epoch, epoch):
            if place.current is None or place.current.epoch != passed:
                place = place._begun(self.stretch if passed == self.epoch else Segment(passed, 0, 0))
        return place

    def _begun(self, stretch: Segment) -> Place:
        return self._replace(finished=self.segments, current=replace(stretch, steps=0))

"""Place of a loader after a batch that was read ahead."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shardkeep._summary import summary
from shardkeep.errors import PlanError
from shardkeep.plan import Damage

__all__ = ["Place"]

_HEAD, _DAMAGE = 4, 5


@dataclass(frozen=True, slots=True)
class Place:
    """Place of a loader after a batch that was read ahead, with the damage of that batch.

    It travels with the batch to the process that uses it, where `Loader.consume` moves the loader.

    Attributes
    ----------
    epoch : int
        Epoch of the batch.
    start, stop : int
        Position of the epoch before and after the step of the batch, in records of all ranks.
    next_epoch : int
        Epoch of the batch after it; a later one than `epoch` after the last step of an epoch.
    damage : tuple of Damage
        Records of the batch that were skipped or repaired.
    """

    epoch: int
    start: int
    stop: int
    next_epoch: int
    damage: tuple[Damage, ...] = ()

    __repr__ = summary

    def to_array(self) -> npt.NDArray[np.int64]:
        """Return the place as int64 of shape (4 + 5 * number of damaged records,), for queues of arrays."""
        damage = (
            number
            for one in self.damage
            for number in (one.epoch, one.record, one.start_bytes, one.stop_bytes, int(one.repaired))
        )
        return np.array([self.epoch, self.start, self.stop, self.next_epoch, *damage], np.int64)

    @classmethod
    def from_array(cls, array: npt.ArrayLike) -> Place:
        """Return the place of an array of `to_array`.

        Parameters
        ----------
        array : array_like of int
            The array, or anything that NumPy converts into it.

        Returns
        -------
        Place

        Raises
        ------
        PlanError
            The array has another shape.
        """
        numbers = np.asarray(array).reshape(-1).tolist()
        if len(numbers) < _HEAD or (len(numbers) - _HEAD) % _DAMAGE:
            raise PlanError(f"a place has 4 numbers and 5 for each damaged record, not {len(numbers)}")
        epoch, start, stop, next_epoch, *rest = numbers
        fields = zip(*(rest[first::_DAMAGE] for first in range(_DAMAGE)), strict=True)
        damage = (Damage(one[0], one[1], one[2], one[3], bool(one[4])) for one in fields)
        return cls(epoch, start, stop, next_epoch, tuple(damage))

"""Passes of Keras over the batches of a loader: which were fetched, and which the model used."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shardkeep.adapters.short_epoch import expect_short_epoch
from shardkeep.errors import PlanError
from shardkeep.loader import Loader, Place

__all__ = ["Passes", "Rows"]

_IDS = ("source", "shard", "index")


class Rows(NamedTuple):
    """Rows of a batch that the model used: the mask of the real ones, if any are padded, and their ids."""

    valid: npt.NDArray[np.bool_] | None
    ids: dict[str, npt.NDArray[np.int64]]


class Passes:
    """The pass over a loader that Keras makes now, shared by a dataset and its callbacks.

    Keras fetches ahead, fetches the first batches again and again to inspect them, and reports only the
    number of each batch that the model used. So batches are fetched by number from where the loader stood
    when batch 0 was fetched, and the place of each is kept until the batch with its number was used.

    Keras asks for the number of batches before callbacks run, and trains all epochs with that number, but
    asks again for the batches that it fetches in one epoch. So the number is that of a whole epoch, except
    between the beginning of an epoch and its first batch, when it is that of the rest.

    Parameters
    ----------
    loader : Loader

    Attributes
    ----------
    has_callback : bool
        True if a callback moves the loader.
    logger : object or None
        The callback that writes rows in this run.
    rows : list of Rows
        Rows of the batches that the last report covers.
    used : int
        Number of batches that the model has used in all.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self.has_callback = False
        self.logger: Any = None
        self.rows: list[Rows] = []
        self.used = 0
        self._mode: str | None = None
        self._begins = False
        self._announced_rest = False
        self._is_in_order = True
        self._epoch = self._first = self._next = self._last_fetched = self._reported = 0
        self._fetched: dict[int, tuple[Place, Rows]] = {}

    def announce(self, whole: int) -> int:
        """Return the number of batches that Keras fetches in a pass that begins now."""
        self._announced_rest = self._begins and self._loader.steps_left < whole
        return self._loader.steps_left if self._announced_rest else whole

    def fetch(self, index: int) -> dict[str, Any]:
        """Return a batch of the pass; index 0 begins a pass where the loader stands."""
        loader = self._loader
        if index == 0 or self._mode is None:
            self._epoch, self._first, self._next = loader.epoch, loader.step, 0
            self._fetched.clear()
        elif index != self._last_fetched + 1:
            self._is_in_order = False
        self._last_fetched = index
        batch, place = loader._read_step(self._first + index, self._epoch)
        if self._mode is not None:
            ids = {name: batch[name] for name in _IDS if loader.with_ids and name in batch}
            self._fetched[index] = place, Rows(batch.get("valid"), ids)
        return batch

    def start(self, mode: str) -> None:
        """Begin a call of `fit`, `evaluate` or `predict`; a validation inside `fit` is not one."""
        if self._mode == "fit" and mode == "evaluate":
            return
        self._mode = mode
        if mode != "fit":
            self.start_epoch()
        elif self._announced_rest:
            self._announced_rest = self._begins = False
            raise PlanError(
                "Keras would train all epochs with the number of batches that were left of this one, since"
                " an earlier call of fit failed before its first batch: call fit again"
            )

    def start_epoch(self) -> None:
        """Begin an epoch of Keras."""
        self._reported = -1
        self._begins = self._is_in_order = True
        expect_short_epoch(self._loader.steps_left < self._loader.steps_per_epoch)

    def report(self, mode: str, number: int) -> None:
        """Move the loader over all batches of this epoch of Keras up to `number`, which the model used.

        Each callback reports; the first report counts.
        """
        if mode != self._mode or number <= self._reported:
            return
        count, self._reported, self._begins = number - self._reported, number, False
        self.rows = []
        for _ in range(count):
            if self._loader.epoch != self._epoch:
                break  # The last of several steps per execution are fewer.
            if not self._is_in_order or self._next not in self._fetched:
                raise PlanError(
                    "Keras fetched batches in another order than the loader's: call fit with shuffle=False"
                    " (and set shuffle= of the Loader), and do not index the dataset during fit"
                )
            place, rows = self._fetched.pop(self._next)
            self._loader.consume(place)
            self._next += 1
            self.used += 1
            self.rows.append(rows)

    def end_epoch(self) -> None:
        """End an epoch of Keras."""
        self._begins = False
        expect_short_epoch(False)

    def end(self, mode: str) -> None:
        """End the call that `start` began."""
        if mode == self._mode:
            self.end_epoch()
            self._mode = None

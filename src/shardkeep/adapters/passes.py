"""Passes of a framework over a loader: where each begins, and the batches of it that were used."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from shardkeep.adapters.short_epoch import expect_short_epoch
from shardkeep.errors import PlanError
from shardkeep.loader import Loader, Place

__all__ = ["Passes", "checked_loader"]


def checked_loader(loader: object) -> Loader:
    """Return the loader that an adapter receives, or raise a `PlanError` if it is another object."""
    if not isinstance(loader, Loader):
        raise PlanError(f"loader must be a shardkeep.Loader, not {type(loader).__name__}")
    return loader


class Passes:
    """Passes over a loader, which moves when a batch is used and not when it is read ahead.

    A pass that was left before its end begins again, so a batch that a framework only inspects is not lost.
    With ``epochs=None`` it begins again at its last epoch.

    Parameters
    ----------
    loader : Loader
    """

    def __init__(self, loader: Loader) -> None:
        self.loader = checked_loader(loader)
        # Threads of TensorFlow read and use batches, also of an iterator that another one has replaced.
        self._lock = threading.Lock()
        self._number = 0
        self._is_open = False
        self._start = loader.bookmark()
        self._stop = (0, 0)

    def begin(self) -> int:
        """Begin a pass, which ends the one before; return its number."""
        with self._lock:
            loader = self.loader
            if self._is_open and (loader.epoch, loader.position) == self._stop:
                loader.rewind(self._start)
            epochs = loader.epochs
            expect_short_epoch(epochs is not None and len(loader) < epochs * loader.steps_per_epoch)
            return self._end()

    def check(self, number: int) -> None:
        """Raise `PlanError` if this is not the number of the current pass."""
        if number != self._number:
            raise PlanError("this iterator is over: its dataset was iterated again; use the later iterator")

    def consume(self, number: int, place: Place) -> None:
        """Move the loader over a batch of the pass with this number."""
        with self._lock:
            self.check(number)
            loader = self.loader
            if not self._is_open:
                self._start = loader.bookmark()
            loader.consume(place)
            self._stop = loader.epoch, loader.position
            # A run ends before each epoch that is a multiple of its number of epochs; a run without an end
            # is left and taken up within an epoch.
            ends = place.next_epoch > place.epoch and not place.next_epoch % (loader.epochs or 1)
            self._is_open = not ends

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move the loader to a state, and end the pass."""
        with self._lock:
            self.loader.load_state_dict(state)
            self._end()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def _end(self) -> int:
        self._is_open = False
        self._number += 1
        return self._number

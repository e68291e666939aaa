"""Batches by number, read ahead for consecutive numbers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

from shardkeep.loader.batches import Batch
from shardkeep.loader.place import Place
from shardkeep.plan import Segment

__all__ = ["NumberedBatches"]


class NumberedBatches:
    """The iteration that the latest call for a batch by number began.

    Parameters
    ----------
    read : callable
        Function that begins an iteration at a segment.
    """

    def __init__(self, read: Callable[[Segment], Iterator[tuple[Batch, Place]]]) -> None:
        self._read = read
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._next: Segment | None = None
        self._batches: Iterator[tuple[Batch, Place]] = iter(())

    def batch(self, segment: Segment) -> tuple[Batch, Place]:
        """Return the batch of the next step of `segment`, and the place after it."""
        if self._pid != os.getpid():
            # A thread of the parent may have held the lock during the fork.
            self._pid, self._lock, self._next = os.getpid(), threading.Lock(), None
        with self._lock:
            batches = self._batches if self._next == segment else self._read(segment)
            self._next = None  # until the batch is here
            taken = next(batches)
            self._batches, self._next = batches, replace(segment, steps=segment.steps + 1)
            return taken

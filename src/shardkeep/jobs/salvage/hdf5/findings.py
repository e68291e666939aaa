"""Parts that a salvage reports, as they are found in the child process."""

from __future__ import annotations

import signal
from typing import Any

from shardkeep.files.child_python import SentBytes, send
from shardkeep.jobs.salvage.report import Outcome

__all__ = ["Findings", "LossFound", "limit_time"]

# Processor time without progress after which HDF5 is in an endless loop; the signal ends the process.
_LOOP_S = 5.0
_SLOWEST_BYTES_PER_S = 10e6


def limit_time(size_bytes: int = 0) -> None:
    """End this process if it does not call this again in time.

    Parameters
    ----------
    size_bytes : int
        Number of bytes that are read and decoded until then.
    """
    signal.setitimer(signal.ITIMER_PROF, _LOOP_S + size_bytes / _SLOWEST_BYTES_PER_S)


class LossFound(BaseException):
    """End of a check at the first part that is lost."""


class Findings:
    """Parts, and progress.

    Parameters
    ----------
    stops : bool
        True to raise `LossFound` for the first part that is lost.
    """

    def __init__(self, *, stops: bool) -> None:
        self._stops = stops
        self.has_lost = False
        self._bytes = SentBytes()

    def begin(self, name: str) -> None:
        """Report the object that is read next: if the process dies, this object is the reason."""
        limit_time()
        send({"bytes": 0, "object": name})

    def read(self, count: int) -> None:
        """Report bytes that were read."""
        limit_time()
        self._bytes.add(count)

    def add(self, outcome: Outcome, reason: str, dataset: str, items: int = 0, **place: Any) -> None:
        """Report a part; `place` has offset_bytes, bytes and chunk where they are known."""
        part = {"outcome": outcome, "reason": reason, "dataset": dataset, "items": items, **place}
        send({"bytes": 0, "part": part})
        self.has_lost |= outcome == "lost"
        if outcome == "lost" and self._stops:
            raise LossFound

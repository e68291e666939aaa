"""Parts that a salvage reports, as they are found in the child process."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any

from shardkeep.jobs.salvage.report import Outcome

__all__ = ["Findings", "limit_time"]

_REPORT_S = 0.1
# Processor time without progress after which HDF5 is in an endless loop; the signal ends the process.
_LOOP_S = 10.0


def limit_time() -> None:
    """End this process after 10 s of processor time, unless this is called again before."""
    signal.setitimer(signal.ITIMER_PROF, _LOOP_S)


class Findings:
    """Parts, and progress.

    Parameters
    ----------
    send : callable
        Takes one message for the parent process.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._unreported, self._reported_s = 0, time.monotonic()
        self.lost = 0

    def begin(self, name: str) -> None:
        """Report the object that is read next: if the process dies, this object is the reason."""
        limit_time()
        self._send({"object": name})

    def read(self, count: int) -> None:
        """Report bytes that were read."""
        limit_time()
        self._unreported += count
        now = time.monotonic()
        if now - self._reported_s >= _REPORT_S:
            self._send({"bytes": self._unreported})
            self._unreported, self._reported_s = 0, now

    def add(self, outcome: Outcome, reason: str, dataset: str, items: int = 0, **place: Any) -> None:
        """Report a part; `place` has offset_bytes, bytes and chunk where they are known."""
        self.lost += outcome == "lost"
        part = {"outcome": outcome, "reason": reason, "dataset": dataset, "items": items, **place}
        self._send({"part": part})

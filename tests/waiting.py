"""Waiting in tests: far longer than an event takes, since machines pause at times."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 200.0  # less than the limit of a test, so that the failure names the event


def eventually(condition: Callable[[], object], what: str = "", *, pause_s: float = 0.01) -> None:
    """Return as soon as a condition holds; fail after `PATIENCE_S`."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what or "it did not come"
        time.sleep(pause_s)

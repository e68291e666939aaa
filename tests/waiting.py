"""How long a test waits for what must come: far longer than it takes, for machines stand still at times."""

from __future__ import annotations

import time
from collections.abc import Callable

PATIENCE_S = 200.0  # less than the limit of a test, so that what was waited for is told


def eventually(condition: Callable[[], object], what: str = "", *, pause_s: float = 0.01) -> None:
    """Return as soon as something is so; fail when it is not for a long time."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what or "it did not come"
        time.sleep(pause_s)

"""A child process of `doctor` that ignores the end of its input, as one whose file server is dead."""

from __future__ import annotations

import time


def probe(*_: object) -> None:
    time.sleep(600)

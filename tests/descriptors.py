"""What this process has open, for tests that count it."""

from __future__ import annotations

import gc
import os


def open_descriptors() -> set[str]:
    """Return the numbers of the open descriptors.

    Garbage goes first: an object of an earlier test that still waits for the collector would be
    counted before and be gone after.
    """
    gc.collect()
    return set(os.listdir("/proc/self/fd"))

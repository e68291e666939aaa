"""Open descriptors of this process, for tests that count or limit them."""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from collections.abc import Iterator


def open_descriptors() -> set[str]:
    """Return the numbers of the open descriptors.

    Garbage is collected first: an object of an earlier test would be counted before and closed after.
    """
    gc.collect()
    return set(os.listdir("/proc/self/fd"))


@contextlib.contextmanager
def few_descriptors(left: int) -> Iterator[None]:
    """Lower the soft limit so that `left` more can be opened, however many earlier tests have open."""
    taken = {int(number) for number in open_descriptors()}
    limit = 0
    while left:
        left -= limit not in taken
        limit += 1
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

"""A mark for the thread that opens files on our own behalf, which the guard has nothing to say about."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

__all__ = ["exempt", "is_exempt"]

_here = threading.local()


@contextlib.contextmanager
def exempt() -> Iterator[None]:
    """Open files unwatched in the body of the ``with``, in this thread."""
    before = is_exempt()
    _here.exempt = True
    try:
        yield
    finally:
        _here.exempt = before


def is_exempt() -> bool:
    """Whether this thread is in such a body."""
    return getattr(_here, "exempt", False)

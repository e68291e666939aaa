"""Errors that outlive the call that raised them.

The traceback of an exception refers to every frame that it passed, and so to rows, mappings of shared memory,
messages and files. An error that is kept for a later call keeps all of them, and a mapping cannot be closed
while a view of it lives: after a full disk that ended the collector.
"""

from __future__ import annotations

from typing import TypeVar

__all__ = ["without_frames"]

_Error = TypeVar("_Error", bound=BaseException)


def without_frames(error: _Error) -> _Error:
    """Return an error that may be kept: neither it nor its causes refer to a frame.

    Examples
    --------
    >>> try:
    ...     raise OSError("no space")
    ... except OSError as error:
    ...     kept = without_frames(error)
    >>> kept, kept.__traceback__
    (OSError('no space'), None)
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            left += [one.__cause__, one.__context__]
    return error

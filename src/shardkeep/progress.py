"""Progress of a job that has several parts, as one bar from the beginning to the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

__all__ = ["Count", "Parts", "Progress", "ticking"]

Progress = Callable[[int, int], object]

_Item = TypeVar("_Item")

_TICK_BYTES = 1 << 20
# Usual ratio of a compressed file; only the progress depends on it.
_RATIO = 4


class Parts:
    """Parts of a job, each of which has its own share of a progress bar.

    Parameters
    ----------
    progress : callable or None
        Called as ``progress(done, total)``. Its method ``describe``, if it has one, is called with the name
        of each part when the part begins.
    total : int or None
        Size of the whole job, such as its bytes. None for the total of the first report of a part.
    weights : mapping of str to int
        Relative cost of each part by its name, in the order of the parts.

    Examples
    --------
    >>> parts = Parts(lambda done, total: print(done, total), 400, {"scan": 1, "copy": 3})
    >>> move = parts.begin("copy")
    100 400
    >>> move(1, 2)
    250 400
    """

    def __init__(self, progress: Progress | None, total: int | None, weights: Mapping[str, int]) -> None:
        self._progress, self._total, self._weights = progress, total, weights

    def begin(self, name: str) -> Progress:
        """Begin a part; return the function that reports ``(done, total)`` of this part in any unit."""
        names = list(self._weights)
        before = sum(self._weights[one] for one in names[: names.index(name)])
        whole = sum(self._weights.values())
        describe = getattr(self._progress, "describe", None)
        if describe is not None:
            describe(name)

        def move(done: int, total: int) -> None:
            if self._total is None:
                self._total = total
            if self._progress is not None:
                share = (before + self._weights[name] * done / max(1, total)) / whole
                self._progress(int(self._total * share), self._total)

        if self._total is not None:
            move(0, 1)
        return move


class Count:
    """A count of work that is done, reported as it grows.

    Parameters
    ----------
    progress : callable
        Called as ``progress(done, total)``.
    total : int
        The greatest count that is reported; each thousandth of it is.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self._next = 0

    def add(self, done: int) -> None:
        """Count work."""
        self._done += done
        if self._done >= self._next:
            self._next = min(self._total, self._done + self._total // 1000)
            self._progress(min(self._done, self._total), self._total)


def ticking(
    items: Iterable[_Item],
    size_of: Callable[[_Item], int],
    file_bytes: int,
    tick: Callable[[int], object],
    *,
    compressed: bool = True,
) -> Iterator[_Item]:
    """Yield the items of a file, and count its bytes as they are read.

    Parameters
    ----------
    items : iterable
    size_of : callable
        Size of an item in bytes.
    file_bytes : int
        Size of the file; at the end, also one by an error, so much is counted.
    tick : callable
        Called with the number of bytes of each part.
    compressed : bool
        True if the items are larger than the part of the file that holds them.
    """
    step_bytes = _TICK_BYTES * (_RATIO if compressed else 1)
    left, read = file_bytes, 0
    try:
        for item in items:
            yield item
            read += size_of(item)
            if read >= step_bytes:
                read = 0
                if left > _TICK_BYTES:
                    left -= _TICK_BYTES
                    tick(_TICK_BYTES)
    finally:
        tick(left)

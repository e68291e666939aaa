"""Progress of a job that has several parts, as one bar from the beginning to the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

__all__ = ["Parts", "Progress"]

Progress = Callable[[int, int], object]


class Parts:
    """Parts of a job, each of which has its own share of a progress bar.

    Parameters
    ----------
    progress : callable or None
        Called as ``progress(done, total)``. Its method ``describe``, if it has one, is called with the name
        of each part when the part begins.
    total : int
        Size of the whole job, such as its bytes.
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

    def __init__(self, progress: Progress | None, total: int, weights: Mapping[str, int]) -> None:
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
            if self._progress is not None:
                share = (before + self._weights[name] * done / max(1, total)) / whole
                self._progress(int(self._total * share), self._total)

        move(0, 1)
        return move

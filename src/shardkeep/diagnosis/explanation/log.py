"""Lines of a log, and the traceback around one of them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

__all__ = ["Log"]

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A progress bar overwrites its line after a carriage return.
_ENDS = re.compile(r"\r\n?|\n")
_DIGITS = re.compile("[0-9]+")
_TRACEBACK = "Traceback (most recent call last)"
_CHAINED = ("During handling of the above exception", "was the direct cause of the following exception")
# The line after it is one of the program, not an error.
_PLACE = re.compile(r'File "[^"]+", line \d+')
_LONGEST_TRACEBACK = 80
_LINES_BEFORE = 12
_LINES_AFTER = 8
# A line may be a whole JSON document; a message is at its start or not at all.
_LONGEST_LINE = 4_000


class Log:
    """A log without colours, as numbered lines.

    Parameters
    ----------
    text : str
    """

    def __init__(self, text: str) -> None:
        self._lines = _ENDS.sub("\n", _COLOURS.sub("", text)).split("\n")

    def lines_with(self, texts: Collection[str], most: int) -> Iterator[int]:
        """Yield the numbers of the lines, from 0, that may hold one of `texts` and are not program code.

        Lines that differ in numbers only are searched once, because a log has few others; of each such kind
        at most `most` lines are found.
        """
        wanted = {_DIGITS.sub("0", text) for text in texts}
        found: dict[str, int] = {}
        for number, line in enumerate(_DIGITS.sub("0", "\n".join(self._lines)).split("\n")):
            count = found.get(line)
            if count is None:
                count = found[line] = 0 if any(text in line for text in wanted) else most
            if count < most and not self._is_code(number):
                found[line] += 1
                yield number

    def line(self, number: int) -> str:
        """Return a line, without its end, cut where it is too long."""
        return self._lines[number][:_LONGEST_LINE]

    def context(self, number: int) -> str:
        """Return the traceback that ends at a line, with chained ones; without one, the lines around it."""
        first = self._traceback_of(number)
        if first is None:
            first = max(0, number - _LINES_BEFORE)
        last = number
        while last + 1 < min(len(self._lines), number + 1 + _LINES_AFTER):
            if _TRACEBACK in self.line(last + 1):
                break
            last += 1
        return "\n".join(self.line(one) for one in range(first, last + 1))

    def _is_code(self, number: int) -> bool:
        """Return True for a line of a program that a traceback shows."""
        place = _PLACE.search(self.line(number - 1)) if number else None
        # It is indented more than the place; a function of C has no such line.
        return place is not None and self.line(number)[place.start() :].startswith("  ")

    def _traceback_of(self, number: int) -> int | None:
        first = None
        for one in range(number, max(-1, number - _LONGEST_TRACEBACK), -1):
            line = self.line(one)
            if _TRACEBACK in line:
                first = one
            elif first is not None and line.strip():
                # The line above a traceback names what failed ("Exception ignored in: …").
                if not any(text in line for text in _CHAINED):
                    return one
                first = None
        return first

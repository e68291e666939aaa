"""Plans for `failing_calls.c` in another process: which calls fail, and the offset of its clock."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

__all__ = ["FailingCalls"]

_PLAN = struct.Struct("<64s64siiqqqq")


class FailingCalls:
    """The plan of one process, which maps the same file.

    Parameters
    ----------
    library : path
        The compiled shim.
    file : path
        The plan; it is created.
    """

    def __init__(self, library: Path, file: Path) -> None:
        file.write_bytes(bytes(_PLAN.size))
        self.environment = {**os.environ, "LD_PRELOAD": str(library), "SK_FAIL": str(file)}
        self._map = _mapped(file)

    @classmethod
    def inherited(cls) -> FailingCalls:
        """Return the plan of this process, from its environment."""
        self = cls.__new__(cls)
        self.environment = dict(os.environ)
        self._map = _mapped(Path(os.environ["SK_FAIL"]))
        return self

    @property
    def calls(self) -> int:
        """Number of calls of the chosen kind."""
        return int(_PLAN.unpack(self._map[:])[6])

    @contextlib.contextmanager
    def failing(
        self,
        functions: str,
        path: str,
        number: int = 0,
        *,
        first: int = 1,
        last: int = 1 << 40,
        is_short: bool = False,
    ) -> Iterator[None]:
        """Make calls on files with `path` in their names fail while the body runs."""
        plan = _PLAN.pack(functions.encode(), path.encode(), number, is_short, first, last, 0, 0)
        # The names last: a call in between must not find half of a plan.
        self._map[64:] = plan[64:]
        self._map[:64] = plan[:64]
        try:
            yield
        finally:
            self._map[:64] = bytes(64)

    def step_clock(self, seconds: int) -> None:
        """Set the clock of the process off by a number of seconds."""
        self._map[-8:] = struct.pack("<q", seconds)


def _mapped(file: Path) -> mmap.mmap:
    with open(file, "r+b") as opened:
        return mmap.mmap(opened.fileno(), _PLAN.size)

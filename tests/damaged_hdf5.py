"""Damaged HDF5 files, read by a child process that may hang or crash."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from tests.waiting import PATIENCE_S

__all__ = ["Reading", "single_bytes"]

# Where everything is zero nothing is stored.
_NEAR_BYTES = 8

Place = tuple[int, int]


def single_bytes(good: bytes, seed: str, count: int) -> Iterator[Place]:
    """Yield offsets and values of damaged bytes: a flipped bit, any byte, 0 or 255."""
    chance = random.Random(seed)
    offsets = [at for at in range(len(good)) if any(good[max(0, at - _NEAR_BYTES) : at + _NEAR_BYTES])]
    for _ in range(count):
        at = chance.choice(offsets)
        values = [good[at] ^ 1 << chance.randrange(8), chance.randrange(256), 0, 255]
        yield at, chance.choice([value for value in values if value != good[at]])


class Reading:
    """Calls on damaged files in a child process; a new one after each that hung or crashed.

    Parameters
    ----------
    path : Path
        The file that is damaged; it stays damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._good = path.read_bytes()
        self._child = _start()

    def outcomes(self, places: Sequence[Place], calls: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Yield call, outcome and text of the error: "ok", "error", a class, "hangs" or "crashes"."""
        self._path.write_bytes(self._good)
        assert self._child.stdin is not None and self._child.stdout is not None
        self._child.stdin.write(json.dumps([str(self._path), places, calls]) + "\n")
        self._child.stdin.flush()
        for call in calls:
            alarm = threading.Timer(PATIENCE_S, self._child.kill)
            alarm.start()
            line = self._child.stdout.readline()
            alarm.cancel()
            if not line:
                code = self._child.wait()
                self._child.communicate()
                self._child = _start()
                yield call, "hangs" if code == -9 else "crashes", f"exit code {code}"
                return
            outcome, text = json.loads(line)
            yield call, outcome, text

    def __enter__(self) -> Reading:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._child.kill()
        self._child.communicate()


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.damage_child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )

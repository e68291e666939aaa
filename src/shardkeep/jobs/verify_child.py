"""The process that reads HDF5 files for `shardkeep.jobs.verify`: a malformed one may crash it.

It takes one path (as JSON) a line, and answers with lines of JSON: ``{"bytes": n}`` while it reads,
then ``{"verdict": …}``, or ``{"error": [exit code, message]}``.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from shardkeep.errors import ShardkeepError
from shardkeep.hdf5 import verify

__all__ = ["main"]

_TELL_S = 0.2


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        _tell(_answer(json.loads(line)))


def _answer(path: str) -> dict[str, Any]:
    waiting, told = 0, time.monotonic()

    def progress(count: int) -> None:
        nonlocal waiting, told
        waiting += count
        now = time.monotonic()
        if now - told >= _TELL_S:
            _tell({"bytes": waiting})
            waiting, told = 0, now

    try:
        verdict = verify(path, progress=progress)
    except ShardkeepError as error:
        return {"error": [error.exit_code, str(error)]}
    except OSError as error:
        return {"error": [2, error.strerror or str(error)]}
    record = None if verdict.record is None else verdict.record.to_json()
    return {"verdict": {**verdict.to_dict(), "record": record}}


def _tell(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201  # the answer to the parent process

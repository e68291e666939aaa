"""Child process that reads HDF5 files for `hdf5_children`, since a malformed file may crash HDF5.

It reads one path (as JSON) from each line of standard input. It answers with lines of JSON: ``{"bytes": n}``
during the work, then ``{"verdict": …}`` or ``{"error": [kind of finding, message]}``.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from shardkeep.errors import ShardkeepError
from shardkeep.hdf5 import verify
from shardkeep.jobs.verification.finding import finding_of
from shardkeep.jobs.verification.segments import Segments

__all__ = ["main"]

_REPORT_S = 0.2


def main() -> None:
    """Serve until standard input ends."""
    segments = Segments()
    for line in sys.stdin:
        _send(_answer(json.loads(line), segments))


def _answer(path: str, segments: Segments) -> dict[str, Any]:
    unreported, reported_s = 0, time.monotonic()

    def progress(count: int) -> None:
        nonlocal unreported, reported_s
        unreported += count
        now = time.monotonic()
        if now - reported_s >= _REPORT_S:
            _send({"bytes": unreported})
            unreported, reported_s = 0, now

    try:
        verdict = segments.verdict(path, progress)
        if verdict is None:
            verdict = verify(path, progress=progress)
            segments.learn(path, verdict)
    except (ShardkeepError, OSError) as error:
        finding = finding_of(error, path)
        return {"error": [finding.kind, finding.message]}
    record = None if verdict.record is None else verdict.record.to_json()
    return {"verdict": {**verdict.to_dict(), "record": record}}


def _send(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201  # the answer to the parent process

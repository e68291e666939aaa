"""Child process that reads HDF5 files for `hdf5_children`, since a malformed file may crash HDF5.

A question is a path. The answer is ``{"verdict": …}`` or ``{"error": [kind of finding, message]}``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from shardkeep.errors import ShardkeepError
from shardkeep.files.child_python import SentBytes, serve
from shardkeep.hdf5 import verify
from shardkeep.jobs.verification.finding import finding_of
from shardkeep.jobs.verification.segments import Segments

__all__ = ["main"]


def main() -> None:
    """Serve until standard input ends."""
    serve(partial(_answer, Segments()))


def _answer(segments: Segments, path: str) -> dict[str, Any]:
    progress = SentBytes().add
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

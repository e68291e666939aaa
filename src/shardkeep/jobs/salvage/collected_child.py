"""Child process that ends the recovered copy of a collector's file as the collector would have ended it.

It reads the path (as JSON) of a copy from each line of standard input, and answers with lines of JSON:
``{"bytes": n}`` during the work, then ``{"rows": …, "expected": n, "findings": […]}`` or ``{"error": …}``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from shardkeep.collector.store.store import Store
from shardkeep.errors import MissingExtraError
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.verify import verify

__all__ = ["main"]


def main() -> None:
    """Serve until standard input ends."""
    for line in sys.stdin:
        _send(_answer(json.loads(line)))


def _answer(path: str) -> dict[str, Any]:
    try:
        store = Store(path, synced=False)
        rows, expected = store.written_rows(), store.clients.rows
        # Rows of an unfinished compressed chunk are written into their dataset.
        store.close(run_ended=False)
        verdict = verify(path, progress=lambda count: _send({"bytes": count}))
        findings = [*verdict.findings, *verdict.unreadable]
    except MissingExtraError as error:
        return {"error": first_line(error), "is_missing_extra": True}
    except Exception as error:  # HDF5 raises whatever the damage makes of its structures
        return {"error": f"{type(error).__name__}: {first_line(error)}"}
    return {"rows": rows, "expected": expected, "findings": findings}


def _send(value: dict[str, Any]) -> None:
    print(json.dumps(value), flush=True)  # noqa: T201  # the answer to the parent process

"""Child process that ends the recovered copy of a collector's file as the collector would have ended it.

A question is the path of a copy. The answer is ``{"rows": …, "expected": n, "findings": […]}`` or
``{"error": …}``.
"""

from __future__ import annotations

from typing import Any

from shardkeep.collector.store.store import Store
from shardkeep.errors import MissingExtraError
from shardkeep.files.child_python import SentBytes, serve
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.verify import verify

__all__ = ["main"]


def main() -> None:
    """Serve until standard input ends."""
    serve(_answer)


def _answer(path: str) -> dict[str, Any]:
    try:
        store = Store(path, synced=False)
        rows, expected = store.written_rows(), store.clients.rows
        # Rows of an unfinished compressed chunk are written into their dataset.
        store.close(run_ended=False)
        verdict = verify(path, progress=SentBytes().add)
        findings = [*verdict.findings, *verdict.unreadable]
    except MissingExtraError as error:
        return {"error": first_line(error), "is_missing_extra": True}
    except Exception as error:  # HDF5 raises whatever the damage makes of its structures
        return {"error": f"{type(error).__name__}: {first_line(error)}"}
    return {"rows": rows, "expected": expected, "findings": findings}

"""The child processes that read HDF5 files for the page.

They are started when needed and serve any file. One that crashes or does not answer is replaced.
"""

from __future__ import annotations

import functools
import signal
from typing import Any

from shardkeep import errors
from shardkeep._paths_in_messages import as_argument, repair_command
from shardkeep.files.child_python import Children
from shardkeep.viewer.locations import Location

__all__ = ["ask", "children"]

# Only a stalled file system takes so long: a child ends itself after some seconds of work.
_SILENT_S = 30.0


@functools.lru_cache
def children() -> Children:
    """Return the children of this process."""
    # Without locks: a writer that begins while the page reads must not find its file locked.
    environment = {"HDF5_USE_FILE_LOCKING": "FALSE", "OPENBLAS_NUM_THREADS": "1"}
    return Children("shardkeep.viewer.hdf5.child.main", silent_s=_SILENT_S, environment=environment)


def ask(location: Location, at: str, show: str, **options: Any) -> dict[str, Any]:
    """Return the answer of a child about one file (`shardkeep.viewer.hdf5.child.main.answer`).

    Raises
    ------
    CorruptDataError
        The child crashed, or did not answer in time.
    ShardkeepError, OSError
        The file cannot be read.
    """
    question = {"path": location.path, "root": location.root, "at": at, "show": show, **options}
    answer = children().ask(question)
    if "found" in answer:
        found: dict[str, Any] = answer["found"]
        return found
    if "error" in answer:
        kind, message = answer["error"]
        raise getattr(errors, kind, OSError)(message)
    raise errors.CorruptDataError(_died(location, answer["died"]))


def _died(location: Location, code: int) -> str:
    if code in (-signal.SIGKILL, -signal.SIGPROF):
        what = "the HDF5 library did not finish reading this in time"
    else:
        name = f" ({signal.Signals(-code).name})" if code < 0 else ""
        what = f"the HDF5 library crashed at this file{name}"
    path = location.command_path
    verify = f"shardkeep verify {as_argument(path)}"
    return f"{what}; run `{verify}`, and `{repair_command(path)}` if it is damaged"

"""Private names of h5py on which Shardkeep depends, and the versions of h5py with which they were tried.

h5py has no public name for its global lock, nor a way to close a file that does not search all open objects
of the process. `File`, `Group` and `Dataset` extend h5py's classes and replace the attribute ``_id``, from
which these read their HDF5 identifier. No other module uses names of h5py modules that begin with "_".
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import h5py

from shardkeep.errors import MissingExtraError

__all__ = ["TRIED_VERSIONS", "check_h5py", "class_with_id", "close_file", "phil"]

TRIED_VERSIONS = ("3.12.1", "3.13.0", "3.14.0", "3.15.1", "3.16.0")
_close_open_objects: Any = getattr(h5py.h5f.FileID, "_close_open_objects", None)
_METHODS = {"Group": ("_d", "_e", "_lapl"), "Dataset": ("_fast_read_ok",)}

phil: Any = getattr(getattr(h5py, "_objects", None), "phil", None) or threading.RLock()
"""h5py's global lock; another lock, with which `check_h5py` raises, if h5py has none of this name."""


@functools.lru_cache(maxsize=1)
def check_h5py() -> None:
    """Raise a `MissingExtraError` if this h5py lacks a private name without a replacement."""
    missing = [] if phil is getattr(getattr(h5py, "_objects", None), "phil", None) else ["_objects.phil"]
    for owner, names in _METHODS.items():
        missing += [f"{owner}.{name}" for name in names if not hasattr(getattr(h5py, owner), name)]
    if class_with_id() is None:
        missing.append("Group.id")
    if missing:
        message = f"h5py {h5py.__version__} lacks {', '.join(missing)}, which Shardkeep needs"
        raise MissingExtraError(f"{message}: pip install 'h5py>={TRIED_VERSIONS[0]},<={TRIED_VERSIONS[-1]}'")


def class_with_id() -> Any:
    """Return the base class of h5py's objects that defines the property ``id``; None if there is none."""
    return next((one for one in h5py.Group.__mro__ if isinstance(vars(one).get("id"), property)), None)


def close_file(file_id: h5py.h5f.FileID) -> None:
    """Close a file and all objects that are open in it."""
    if _close_open_objects is None:
        h5py.File(file_id).close()  # searches all open objects of the process, which takes longer
        return
    # The order of `h5py.File.close`.
    _close_open_objects(file_id, h5py.h5f.OBJ_LOCAL | ~h5py.h5f.OBJ_FILE)
    _close_open_objects(file_id, h5py.h5f.OBJ_LOCAL | h5py.h5f.OBJ_FILE)
    file_id.close()

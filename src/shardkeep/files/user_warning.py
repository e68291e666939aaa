"""Warnings with the line of the user's code, at any depth of the call stack."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import warnings

from shardkeep._paths_in_messages import shown
from shardkeep.errors import one_line

__all__ = ["warn_user"]


def warn_user(message: str) -> None:
    """Issue a `RuntimeWarning` for the nearest call outside Shardkeep and h5py.

    A fixed ``stacklevel`` would be wrong, since the depth of the call stack varies.
    """
    frame = sys._getframe(1)
    caller = frame
    while caller.f_back is not None and caller.f_code.co_filename.startswith(_NOT_THE_USERS):
        caller = caller.f_back
    if caller.f_code.co_filename.startswith(_NOT_THE_USERS):
        caller = frame  # the interpreter is exiting
    warnings.warn_explicit(
        one_line(shown(message)),  # names in it come from files
        RuntimeWarning,
        caller.f_code.co_filename,
        caller.f_lineno,
        caller.f_globals.get("__name__") or "<string>",  # Python drops a warning with None
        caller.f_globals.setdefault("__warningregistry__", {}),
    )


def _folder(package: str) -> str:
    spec = importlib.util.find_spec(package)  # not imported: it is optional here, and slow
    return os.path.dirname(spec.origin) + os.sep if spec is not None and spec.origin else "\0"


_NOT_THE_USERS = (_folder("shardkeep"), _folder("h5py"), contextlib.__file__)

"""Warnings that show the line of the user's code, however many of ours lie between."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import warnings

from shardkeep.errors import one_line

__all__ = ["warn_user"]


def warn_user(message: str) -> None:
    """Give a `RuntimeWarning` about the nearest call that is neither ours nor h5py's.

    A fixed ``stacklevel`` is wrong as soon as one function calls another one on the way.
    """
    frame = sys._getframe(1)
    caller = frame
    while caller.f_back is not None and caller.f_code.co_filename.startswith(_NOT_THE_USERS):
        caller = caller.f_back
    if caller.f_code.co_filename.startswith(_NOT_THE_USERS):
        caller = frame  # at the end of the process nobody called
    warnings.warn_explicit(
        one_line(message),  # names in it come from files
        RuntimeWarning,
        caller.f_code.co_filename,
        caller.f_lineno,
        caller.f_globals.get("__name__") or "<string>",  # of None Python drops the warning
        caller.f_globals.setdefault("__warningregistry__", {}),
    )


def _folder(package: str) -> str:
    spec = importlib.util.find_spec(package)  # not imported: it is optional here, and slow
    return os.path.dirname(spec.origin) + os.sep if spec is not None and spec.origin else "\0"


_NOT_THE_USERS = (_folder("shardkeep"), _folder("h5py"), contextlib.__file__)

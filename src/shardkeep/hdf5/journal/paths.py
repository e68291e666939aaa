"""Paths of the files that a collector keeps next to its HDF5 file."""

from __future__ import annotations

import os

__all__ = ["log_path", "readers_path", "real_name"]


def real_name(path: str) -> str:
    """Return the path that lock, redo log and address file are named after: the target of a link."""
    return os.path.realpath(path) if os.path.islink(path) else path


def log_path(path: str) -> str:
    """Return the path of the redo log; it exists while a collector runs, and after it was killed."""
    return f"{real_name(path)}.redo"


def readers_path(path: str) -> str:
    """Return the path of the lock that readers share."""
    return f"{real_name(path)}.readers"

"""Search for the sources of a virtual file as HDF5 does it (``H5F_prefix_open_file`` in its H5F.c)."""

from __future__ import annotations

import os
from collections.abc import Iterator

__all__ = ["SourceSearch"]


class SourceSearch:
    """The folders in which the sources of one file are searched.

    Parameters
    ----------
    file_path : str
        Absolute path of the file with the virtual dataset.
    merged : bool
        Whether `shardkeep.hdf5.merge` wrote it. HDF5 also looks in the current folder, where another run may
        have files of the same names: the sources of a merge are never taken from there.
    """

    def __init__(self, file_path: str, *, merged: bool = False) -> None:
        self._file_path = file_path
        self._merged = merged
        self._folder = os.path.dirname(file_path)
        prefixes = os.environ.get("HDF5_VDS_PREFIX", "").split(":")
        folders = [prefix.replace("${ORIGIN}", self._folder) for prefix in prefixes if prefix]
        self._folders = [*folders, self._folder]
        self._first = os.fsencode(os.path.join(self._folders[0], ""))

    def first(self, name: bytes) -> bytes:
        """Return the path at which a source of that name is searched first."""
        if name == b".":
            return os.fsencode(self._file_path)
        return name if name.startswith(b"/") else self._first + name

    def find(self, name: bytes) -> bytes:
        """Return the first path that exists; without one, the path in the folder of the file."""
        if name == b".":
            return os.fsencode(self._file_path)
        text = os.fsdecode(name)
        for path in self._candidates(text):
            if os.path.exists(path):
                return os.fsencode(path)
        return os.fsencode(os.path.join(self._folder, text))

    def _candidates(self, name: str) -> Iterator[str]:
        rest = name
        if os.path.isabs(name):
            yield name
            rest = os.path.basename(name)
        for folder in self._folders:
            yield os.path.join(folder, rest)
        if rest is name and not self._merged:
            yield os.path.abspath(rest)
        yield os.path.join(os.path.dirname(os.path.realpath(self._file_path)), rest)

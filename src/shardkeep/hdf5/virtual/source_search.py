"""Search for the sources of a virtual file as HDF5 does it (``H5F_prefix_open_file`` in its H5F.c)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import h5py

from shardkeep.hdf5.storage.names import decode_name, encode_name, shown_name

__all__ = ["SourceSearch", "dangling_link"]


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


def dangling_link(file_id: h5py.h5f.FileID, name: str) -> str | None:
    """Return a clause about the link at which a path ends; None if it ends at none.

    Parameters
    ----------
    file_id : h5py.h5f.FileID
        An open file.
    name : str
        Path of an object that HDF5 cannot open.
    """
    parts = [part for part in name.split("/") if part not in ("", ".")]
    for count in range(1, len(parts) + 1):
        path = encode_name("/".join(parts[:count]))
        try:
            kind = file_id.links.get_info(path).type
            if kind == h5py.h5l.TYPE_HARD:
                continue
            target = file_id.links.get_val(path)
        except (KeyError, OSError, RuntimeError, ValueError):
            return None
        try:
            h5py.h5o.open(file_id, path)
        except (KeyError, OSError, RuntimeError):
            link = shown_name(decode_name(path))
            if kind == h5py.h5l.TYPE_EXTERNAL:
                file, inside = map(os.fsdecode, target)
                return f"is not there, since the link {link} to {inside!r} in the file {file!r} leads nowhere"
            return f"is not there, since the link {link} to {shown_name(decode_name(target))} leads nowhere"
    return None

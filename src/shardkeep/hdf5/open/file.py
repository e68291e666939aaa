"""`File`: h5py's own class, whose HDF5 handle may be closed and opened again without notice."""

from __future__ import annotations

import os
from typing import Any

import h5py

from shardkeep.errors import LockError
from shardkeep.files.kinds.urls import is_url
from shardkeep.files.remote.cache import View
from shardkeep.files.remote.copies import local_copy
from shardkeep.hdf5.open.group import Group
from shardkeep.hdf5.open.handle import FileHandle
from shardkeep.hdf5.storage.names import encode_name

__all__ = ["File", "open_source_file"]

_getpid = os.getpid


def open_source_file(path: str) -> File:
    """Open a source of a virtual dataset."""
    return File(path, "r", timeout_s=0.0, if_unsafe="refuse", check_sources=True, options={})


class File(FileHandle, Group, h5py.File):  # type: ignore[misc]
    """An HDF5 file that may cross ``fork``, ``spawn`` and ``pickle``; returned by `shardkeep.hdf5.open`.

    All methods of `h5py.File` work, and errors are those of `shardkeep.errors`.

    Attributes
    ----------
    writes : bool
        Whether it may be written; then it belongs to the process that opened it.
    locking : str
        How other processes are excluded: "flock", or "none" with the reason.
    rdcc_nbytes : int
        Most bytes that the chunk cache of one dataset takes.

    See Also
    --------
    shardkeep.hdf5.open : Opens a file; describes locks, budgets and virtual datasets.
    """

    _open_source = staticmethod(open_source_file)
    # Of a remote object: its URL, and the view that keeps the local copy.
    _url: str | None = None
    _view: View | None = None

    @classmethod
    def of_url(cls, url: str, settings: dict[str, Any]) -> File:
        """Open a local copy of a remote object for reading; see `shardkeep.hdf5.open`."""
        path, view = local_copy(url)
        file = cls(path, "r", **settings)
        file._url, file._view = url, view
        return file

    def linked(self, oid: Any, name: str) -> Any:
        """Return an object to which an external link leads, as one of the `File` that has it.

        Parameters
        ----------
        oid : h5py.h5g.GroupID or h5py.h5d.DatasetID
            The object, opened through the link.
        name : str
            Its path in that file, according to HDF5.

        Returns
        -------
        Group, Dataset or None
            None if the path does not lead there: HDF5 reports another one for a link to a link.
        """
        path = os.fsdecode(h5py.h5f.get_name(oid))
        file = self._linked.get(path)
        if file is None or not file:
            # Only what the link leads to concerns the caller: a source that another dataset lacks does not.
            file = File(path, "r", **self._settings | {"all_at_open": False})
            self._linked[path] = file
        found = file.get(encode_name(name))
        return found if found is not None and found.id == oid else None

    @property
    def _settings(self) -> dict[str, Any]:
        return {
            "timeout_s": self._timeout_s,
            "if_unsafe": self._if_unsafe,
            "check_sources": self.checks_sources,
            "options": self._options,
            "all_at_open": self._all_at_open,
        }

    @property
    def mode(self) -> str:
        """The mode as h5py has it: "r" or "r+"."""
        return "r+" if self.writes else "r"

    def flush(self) -> None:
        """Pass the data that HDF5 holds to the operating system; a reader has none.

        Raises
        ------
        OSError, RuntimeError
            HDF5 could not write.
        """
        if self.writes:
            super().flush()

    def __enter__(self) -> File:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __bool__(self) -> bool:
        return not self._is_closed and not (self.writes and self._pid != _getpid())

    def __repr__(self) -> str:
        if self._is_closed:
            return "<Closed HDF5 file>"
        return f'<HDF5 file "{os.path.basename(self._given_path)}" (mode {self.mode}, shardkeep)>'

    def __del__(self) -> None:
        if hasattr(self, "_pid"):
            self.close()

    def __reduce__(self) -> Any:
        if self.writes:
            message = f"{self._given_path!r} is open for writing in process {self._pid} and cannot be pickled"
            raise LockError(f"{message}: pass its path, or open it with mode 'r'", path=self._given_path)
        self._check_usable()
        return _unpickled, (self._url or self._absolute_path, self._settings)


def _unpickled(path: str, settings: dict[str, Any]) -> File:
    return File.of_url(path, settings) if is_url(path) else File(path, "r", **settings)

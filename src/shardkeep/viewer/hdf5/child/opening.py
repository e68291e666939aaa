"""Opening of HDF5 files without a lock, and of the objects in them without a way out of the root.

HDF5 follows external links, external raw storage and virtual sources by itself, to any file of the user. So a
path is followed here, name by name, and a name that leads to another file is refused.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import h5py

from shardkeep.errors import BudgetError, LockError, NotFoundError, UntrustedFileError
from shardkeep.hdf5.journal.live_view import open_consistent
from shardkeep.hdf5.journal.paths import log_path, real_name
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.locking.holders import conflict, is_locked
from shardkeep.hdf5.locking.reading import open_for_reading
from shardkeep.hdf5.read_errors import is_of_hdf5, reading
from shardkeep.hdf5.storage.names import decode_name, encode_name, shown_name
from shardkeep.viewer.locations import is_within

__all__ = ["OpenFile", "find", "open_file", "reading_in_limits", "resolved", "shown_path"]

_MOST_HOPS = 16
_CACHE_BYTES = 1 << 20


class OpenFile:
    """An HDF5 file that is open for one request, and the sources of its virtual datasets.

    Attributes
    ----------
    path : str
    root : str
        The folder or file outside of which nothing is read.
    fid : h5py.h5f.FileID
    collected : bool
        Whether a collector is writing the file; it waits with changes until the file is closed.
    """

    def __init__(self, path: str, root: str, opened: contextlib.ExitStack) -> None:
        self.path, self.root, self._opened = path, root, opened
        self._sources: dict[str, OpenFile] = {}
        self._version = FileVersion.of(os.stat(path))
        self.collected = os.path.exists(log_path(path))
        if self.collected:
            # A collector locks the name of the file, not the file.
            if not is_locked(real_name(path) + ".lock"):
                raise LockError(
                    f"{path!r} has rows of a collector that was killed, or that runs on another host;"
                    f" `shardkeep info` writes them into the file, which this page does not do",
                    path=path,
                )
            self.fid, lock = open_consistent(path, 0.0, self._open, lambda fid: fid)
            if lock is not None:
                opened.callback(lock.release)
        else:
            if is_locked(path):
                raise conflict(path, writing=False)
            self.fid = self._open()
        opened.callback(self.fid.close)

    @property
    def is_changed(self) -> bool:
        """Whether the file was changed since it was opened."""
        return not self.collected and FileVersion.of(os.stat(self.path)) != self._version

    def source(self, path: str) -> OpenFile:
        """Return another file of this request.

        Raises
        ------
        UntrustedFileError
            It is outside of the root.
        """
        real = os.path.realpath(path)
        if not is_within(real, self.root):
            raise UntrustedFileError(
                f"rows come from {path!r}, outside of the folder of this page: pass a folder that has both"
                " files to `shardkeep view`",
                path=path,
            )
        if real not in self._sources:
            if not os.path.exists(real):
                raise NotFoundError(f"{path!r}, a source of these rows, is missing", path=path)
            self._sources[real] = found = OpenFile(real, self.root, self._opened)
            found._sources = self._sources
        return self._sources[real]

    def _open(self) -> h5py.h5f.FileID:
        return open_for_reading(self.path, self.path, 0.0, _CACHE_BYTES, {})[0]


@contextlib.contextmanager
def open_file(path: str, root: str) -> Iterator[OpenFile]:
    """Open a file for one request; errors of HDF5 in the body are raised as those of Shardkeep."""
    if not is_within(os.path.realpath(path), root):
        raise UntrustedFileError(f"{path!r} is a link to a file elsewhere", path=path)
    with reading_in_limits(path), contextlib.ExitStack() as opened:
        yield OpenFile(path, root, opened)


@contextlib.contextmanager
def reading_in_limits(path: str, name: str | None = None) -> Iterator[None]:
    """Raise errors of HDF5 as `reading`, but a `BudgetError` where this process must not take more memory."""
    with reading(path, name):
        try:
            yield
        except Exception as error:
            if isinstance(error, MemoryError) or (is_of_hdf5(error) and "alloc" in str(error)):
                message = f"the values of {path!r} take more memory than the page may use"
                raise BudgetError(f"{message}: read them with `shardkeep cat`", path=path) from error
            raise


def shown_path(file: OpenFile, path: str) -> str | None:
    """Return the real path of another file if it exists within the root; otherwise None."""
    real = os.path.realpath(path)
    return real if is_within(real, file.root) and os.path.exists(real) else None


def resolved(file: OpenFile, target: str) -> str | None:
    """Return the real path of an external link if it is within the root; otherwise None."""
    return shown_path(file, os.path.join(os.path.dirname(file.path), target))


def find(file: OpenFile, path: str) -> Any:
    """Return the identifier of an object.

    Parameters
    ----------
    file : OpenFile
    path : str
        From the root group; soft links on the way are followed.

    Raises
    ------
    NotFoundError
        There is no such object.
    UntrustedFileError
        A link on the way leads to another file.
    """
    root = h5py.h5g.open(file.fid, b"/")
    # The groups from the root on.
    here: list[Any] = [root]
    names = _names(encode_name(path))
    hops = 0
    while names:
        name = names.pop(0)
        group = here[-1]
        if not isinstance(group, h5py.h5g.GroupID) or not group.links.exists(name):
            raise NotFoundError(f"{shown_name(path)} does not exist in {file.path!r}", path=file.path)
        kind = group.links.get_info(name).type
        if kind == h5py.h5l.TYPE_HARD:
            here.append(h5py.h5o.open(group, name))
            continue
        hops += 1
        if kind != h5py.h5l.TYPE_SOFT:
            what = f"{shown_name(decode_name(name))} is a link to another file"
            raise UntrustedFileError(f"{what}, which is not followed: open that file itself", path=file.path)
        if hops > _MOST_HOPS:
            raise NotFoundError(f"{shown_name(path)} is a link to itself", path=file.path)
        target = group.links.get_val(name)
        names = _names(target) + names
        if target.startswith(b"/"):
            here = [root]
    return here[-1]


def _names(path: bytes) -> list[bytes]:
    return [name for name in path.split(b"/") if name not in (b"", b".")]

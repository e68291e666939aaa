"""The object of a collector in a store, and the local file that is written in its place.

::

    $SHARDKEEP_CACHE_DIR/collected/KEY/all.h5       the file of the collector, until its upload
    $SHARDKEEP_CACHE_DIR/collected/KEY/base.json    the version of the object that it continues

A collector changes its file in place, which no store allows, so rows are durable on the disk of its host, and
the object is replaced at the end. The local file is removed after that. Where there is one, its rows were not
uploaded: the collector was killed, or the store refused them. The next collector of the URL on this host
continues it.
"""

from __future__ import annotations

import contextlib
import filecmp
import json
import os
from collections.abc import Iterator

from shardkeep._paths_in_messages import show_as
from shardkeep.errors import ExistsError
from shardkeep.files.kinds.urls import display, is_url, url_name, url_parent
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.publish import publish_sidecar
from shardkeep.files.remote.pending import local_folder
from shardkeep.files.remote.store import download, find
from shardkeep.files.remote.uploads import upload_file, upload_to
from shardkeep.hdf5.journal.paths import log_path

__all__ = ["local_file", "written_locally"]

_BASE = "base.json"


def local_file(place: str) -> str:
    """Return the file that a collector on this host writes for a URL; any other place as it is."""
    if not is_url(place):
        return place
    folder = local_folder("collected", place)
    show_as(folder, url_parent(place))
    return os.path.join(folder, url_name(place))


@contextlib.contextmanager
def written_locally(place: str) -> Iterator[str]:
    """Give the local file to write for a URL, and upload it at the end of the body.

    Parameters
    ----------
    place : str
        A URL; a path is given as it is.

    Yields
    ------
    str
        The file: that of a collector that was killed, a copy of the object, or the name of a new one.

    Raises
    ------
    LockTimeoutError
        Another process of this host collects for this URL.
    ExistsError
        Another host has replaced the object, and there are local rows that it does not have.
    PlanError, RemoteError, MissingExtraError
        The store cannot be written.

    Notes
    -----
    After an error in the body nothing is uploaded, and the local file stays. An upload of another host
    between the last check of the version and the upload of this one is not noticed.
    """
    if not is_url(place):
        yield place
        return
    path = local_file(place)
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with FileLock(os.path.join(folder, "upload"), timeout_s=0.0):
        _begin(place, path)
        yield path
        found = find(place)
        if found is not None and found.version != _base(folder):
            raise _replaced(place)
        upload_file(path, place, replace=found is not None)
        for name in (path, log_path(path), os.path.join(folder, _BASE)):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)


def _begin(url: str, path: str) -> None:
    folder = os.path.dirname(path)
    copy = os.path.join(folder, "copy.part")
    found = find(url)
    upload_to(url, replace=found is not None)  # now, not after hours, if the store refuses it
    is_here = os.path.exists(path)
    if found is not None and not (is_here and found.version == _base(folder)):
        download(found, copy)
        # The same after a kill between the upload and the removal of the local file.
        if is_here and not filecmp.cmp(path, copy, shallow=False):
            os.unlink(copy)
            raise _replaced(url)
    if not is_here or found is not None:
        with publish_sidecar(os.path.join(folder, _BASE), mode=0o600) as file:
            file.write(json.dumps({"version": found and found.version}).encode())
    if os.path.exists(copy):
        os.replace(copy, path)


def _base(folder: str) -> str | None:
    try:
        with open(os.path.join(folder, _BASE), "rb") as file:
            version: str | None = json.load(file)["version"]
            return version
    except FileNotFoundError:
        return None


def _replaced(url: str) -> ExistsError:
    shown = display(url)
    return ExistsError(
        f"{shown} was written by another process since: the rows of this collector are kept on this host;"
        f" give the object another name, and run shardkeep collect --recover {shown}",
        path=shown,
    )

"""The indexes of the shards of a remote folder in one object, ``all.skidx``.

A folder of 10,000 shards has 10,000 indexes, and a request for each of them takes longer than the first
shard. So `build_index` stores them together, too: in a ZIP archive without compression, with an entry
``<shard>.skidx`` for each shard. The comment of an entry is the version of the shard in the store, and an
entry of another version is not used.

A loader requests the first megabyte of it while the folder is listed. Then the first batch needs the listing
and one shard, and the connection for the shard is there.
"""

from __future__ import annotations

import contextlib
import io
import os
import threading
import zipfile
from collections.abc import Iterable, Mapping
from queue import SimpleQueue

from shardkeep.errors import ShardkeepError
from shardkeep.files.kinds.urls import is_pattern, is_url, join_url, path_or_url, url_name, url_parent
from shardkeep.files.remote.cache import View, object_path
from shardkeep.files.remote.store import ObjectInfo, list_folder, read
from shardkeep.files.remote.uploads import upload_file

__all__ = ["NAME", "read_together", "request_together", "store_together"]

NAME = "all.skidx"
_FIRST_BYTES = 1 << 20

_requested: dict[tuple[int, str], SimpleQueue[bytes | None]] = {}


def request_together(paths: Iterable[object]) -> None:
    """Request the beginning of the object of a folder, if this host has not read that folder before."""
    folders = {url_parent(path_or_url(path)) for path in paths if is_url(path)}  # type: ignore[arg-type]
    if len(folders) != 1:
        return
    (folder,) = folders
    with contextlib.suppress(ShardkeepError, OSError):  # the listing raises it
        if is_pattern(folder) or os.path.exists(_mark(folder)):
            return
        answer: SimpleQueue[bytes | None] = SimpleQueue()
        _requested.clear()  # one is enough: the functions that use it follow each other
        _requested[os.getpid(), folder] = answer
        threading.Thread(target=_request, args=(folder, answer), name="shardkeep-index", daemon=True).start()


def read_together(folder: str, listed: Mapping[str, ObjectInfo]) -> dict[tuple[str, str], bytes]:
    """Return the index files of shards by the URL and the version of the shard.

    Parameters
    ----------
    folder : str
    listed : mapping of str to ObjectInfo
        The objects in the folder by their URLs.

    Raises
    ------
    RemoteError
        The object is listed and cannot be read.
    """
    answer = _requested.pop((os.getpid(), folder), None)
    stored = listed.get(join_url(folder, NAME))
    if stored is None:
        _remember(folder)
        return {}
    data = None if answer is None or stored.size_bytes > _FIRST_BYTES else answer.get()
    view = View(folder)
    try:
        source = io.BytesIO(data) if data is not None else view.fetch(stored)
        found = {
            (join_url(folder, entry.filename.removesuffix(".skidx")), entry.comment.decode()): content
            for entry, content in _entries(source)
        }
    finally:
        view.close()
    _remember(folder)
    return found


def store_together(indexes: Iterable[tuple[ObjectInfo, bytes]]) -> None:
    """Store the index files of shards in the object of their folder, in place of those it had for them.

    Raises
    ------
    RemoteError, PlanError
        The object cannot be written.
    """
    folders: dict[str, dict[tuple[str, str], bytes]] = {}
    for info, content in indexes:
        folders.setdefault(url_parent(info.url), {})[info.url, info.version] = content
    for folder, members in folders.items():
        if len(members) == 1:
            continue
        listed = {one.url: one for one in list_folder(folder)}
        before = read_together(folder, listed)
        kept = {(url, version): data for (url, version), data in before.items() if _has(listed, url, version)}
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as out:
            for (url, version), content in sorted({**kept, **members}.items()):
                entry = zipfile.ZipInfo(f"{url_name(url)}.skidx")
                entry.comment = version.encode()
                out.writestr(entry, content)
        upload_file(archive.getvalue(), join_url(folder, NAME), replace=True)


def _has(listed: Mapping[str, ObjectInfo], url: str, version: str) -> bool:
    return url in listed and listed[url].version == version


def _entries(source: io.BytesIO | str) -> Iterable[tuple[zipfile.ZipInfo, bytes]]:
    try:
        with zipfile.ZipFile(source) as archive:
            return [
                (entry, archive.read(entry))
                for entry in archive.infolist()
                if entry.compress_type == zipfile.ZIP_STORED
            ]
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError):
        return []  # damaged: the index of each shard is read


def _request(folder: str, answer: SimpleQueue[bytes | None]) -> None:
    data = None
    with contextlib.suppress(Exception):  # it is not there, or the listing fails too
        data = bytes(read(join_url(folder, NAME), 0, _FIRST_BYTES, to_the_end=True))
    answer.put(data)


def _mark(folder: str) -> str:
    return object_path(ObjectInfo(join_url(folder, NAME), 0, "")) + ".read"


def _remember(folder: str) -> None:
    mark = _mark(folder)
    os.makedirs(os.path.dirname(mark), mode=0o700, exist_ok=True)
    with open(mark, "wb"):
        pass

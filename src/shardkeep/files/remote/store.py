"""Objects of remote stores: their sizes, versions and contents.

Every function ends in bounded time, and repeats what may succeed later (`shardkeep.files.remote.requests`).
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from shardkeep.errors import NotFoundError, RemoteError
from shardkeep.files.kinds.urls import display, join_url, split_url, url_name, url_parent
from shardkeep.files.remote.requests import attempt_s, bounded, call, drop_listings, file_system, repeated
from shardkeep.files.remote.s3_content import NoRangesError, content_reader
from shardkeep.files.threads.tasks import Tasks

__all__ = [
    "ObjectInfo",
    "changed",
    "checks_versions",
    "concurrently",
    "download",
    "find",
    "list_folder",
    "list_objects",
    "list_tree",
    "read",
    "read_many",
    "reads_ranges",
    "stat",
    "stat_many",
]

# Requests at the same time of one call. Stores answer each slowly, and many at once fast.
CONCURRENT = 16
# The same for small objects, whose time is latency.
_CONCURRENT_SMALL = 64
# Length of a range of a download: an attempt is repeated as a whole.
PART_BYTES = 16 << 20
_RECENT_S = 5.0
_VERSIONS = ("ETag", "etag", "e_tag", "checksum", "md5Hash", "generation", "CRC")
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "modification_time", "updated", "created")

_listed: dict[tuple[int, str], tuple[float, list[ObjectInfo]]] = {}
# By what is before the path of an object; a store is missing until a range of it was read.
_ranges: dict[str, bool] = {}


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """Size and version of an object.

    Attributes
    ----------
    url : str
        Its URL, with credentials if the caller's had some.
    size_bytes : int
    version : str
        The ETag or checksum of the store; where it has none, the time of the last change. Two contents of an
        object have different versions.
    """

    url: str
    size_bytes: int
    version: str


# -- sizes and versions -------------------------------------------------------------------------------


def stat(url: str) -> ObjectInfo:
    """Return size and version of an object.

    Raises
    ------
    NotFoundError, RemoteError, MissingExtraError
    """
    drop_listings()
    raw = call(url, "find", "info")
    if raw.get("type") == "directory":
        raise NotFoundError(f"{display(url)} is a folder, not an object", path=display(url))
    return _info(url, raw)


def find(url: str) -> ObjectInfo | None:
    """Return size and version of an object; None if there is none."""
    try:
        return stat(url)
    except NotFoundError:
        return None


def stat_many(urls: Sequence[str]) -> list[ObjectInfo]:
    """Return size and version of objects, by one listing where several are in one folder."""
    folders: dict[str, list[str]] = {}
    for url in urls:
        folders.setdefault(url_parent(url), []).append(url)
    known: dict[str, ObjectInfo] = {}
    for folder, members in folders.items():
        if len(members) > 2 and not folder.lower().startswith(("http:", "https:")):
            known.update((info.url, info) for info in list_folder(folder, recent=True))
    missing = [url for url in urls if url not in known]
    known.update(zip(missing, concurrently((stat, url) for url in missing), strict=True))
    return [known[url] for url in urls]


def list_objects(pattern: str) -> list[ObjectInfo]:
    """Return the objects that match a pattern, sorted by URL.

    Raises
    ------
    RemoteError, MissingExtraError
        A pattern without a match is not an error.
    """
    before, path, after = split_url(pattern)
    magic = re.search(r"[*?\[]", path)
    assert magic is not None
    literal = path[: path.rfind("/", 0, magic.start()) + 1].rstrip("/")
    folder = before + literal + after
    if "/" not in path[magic.start() :]:
        # A listing of the folder, since `glob` of some back ends makes several requests.
        names = path[len(literal) :].lstrip("/")
        inside = list_folder(folder, named=pattern)
        found = [one for one in inside if fnmatch.fnmatchcase(url_name(one.url), names)]
    else:
        drop_listings()
        raw: dict[str, Any] = call(pattern, "list", "glob", detail=True)
        found = _infos(folder, raw.values())
    return sorted(found, key=lambda info: info.url)


def list_folder(folder: str, *, named: str | None = None, recent: bool = False) -> list[ObjectInfo]:
    """Return the objects directly in a folder, sorted by URL.

    Parameters
    ----------
    folder : str
    named : str, optional
        URL of the errors, if it differs.
    recent : bool
        A listing of the last seconds will do.
    """
    listed = _listed.get((os.getpid(), folder))
    if recent and listed is not None and time.monotonic() - listed[0] < _RECENT_S:
        return listed[1]
    drop_listings()
    try:
        raw = call(folder, "list", "ls", detail=True, named=named)
    except NotFoundError:
        return []
    found = sorted(_infos(folder, raw), key=lambda info: info.url)
    _listed.clear()  # one is enough: the functions that use it follow each other
    _listed[os.getpid(), folder] = time.monotonic(), found
    return found


def list_tree(folder: str) -> list[ObjectInfo]:
    """Return the objects in a folder and in those below it, sorted by URL."""
    drop_listings()
    try:
        raw: dict[str, Any] = call(folder, "list", "find", detail=True)
    except NotFoundError:
        return []
    return sorted(_infos(folder, raw.values()), key=lambda info: info.url)


def _infos(folder: str, raws: Iterable[dict[str, Any]]) -> list[ObjectInfo]:
    _, base = file_system(folder)
    files = [raw for raw in raws if raw.get("type") != "directory"]
    urls = []
    for raw in files:
        # `base` has no host with sftp and others, as the names of the listing. HTTP lists whole URLs.
        name = str(raw["name"])
        below = name[len(base) :] if name.startswith(base) else name.rpartition("/")[2]
        urls.append(join_url(folder, below.lstrip("/")))
    pairs = [(url, raw) for url, raw in zip(urls, files, strict=True) if not url.endswith("/")]
    found = [_info(url, raw) for url, raw in pairs if raw.get("size") is not None]
    return found + concurrently((stat, url) for url, raw in pairs if raw.get("size") is None)


def _info(url: str, raw: dict[str, Any]) -> ObjectInfo:
    size = raw.get("size")
    if size is None:
        raise RemoteError(
            f"cannot read {display(url)}: its server does not report sizes; copy it, and pass the local path",
            path=display(url),
        )
    version = next((str(raw[key]) for key in _VERSIONS if raw.get(key)), None)
    if version is None:
        when = next((raw[key] for key in _TIMES if raw.get(key)), None)
        # A number in the listing of some back ends is a datetime in the answer for one object.
        stamp = getattr(when, "timestamp", None)
        version = f"{stamp() if stamp else when}/{size}"
    return ObjectInfo(url, int(size), version.strip('"'))


# -- contents -----------------------------------------------------------------------------------------


def read(
    url: str,
    start: int = 0,
    stop: int | None = None,
    *,
    version: str | None = None,
    whole: bool = False,
    to_the_end: bool = False,
) -> bytes | memoryview:
    """Return the bytes of an object, or of a range of it.

    Parameters
    ----------
    url : str
    start, stop : int
    version : str, optional
        Of the object; not checked where `checks_versions` is False.
    whole : bool
        The range is the whole object. Some stores answer a request for such a range as one without.
    to_the_end : bool
        The range ends where the object ends, if that is before `stop`.

    Raises
    ------
    RemoteError
        Also if the object has another version, and if the store returns fewer bytes than the range has, again
        and again.
    """
    if stop is not None and stop <= start:
        return b""
    is_range = not whole and (start > 0 or stop is not None)

    def attempt(limit_s: float) -> bytes | memoryview:
        first, last = (start, stop) if is_range and reads_ranges(url) else (0, None)
        direct = content_reader(url, attempt_s())
        if direct is not None:
            try:
                data = bounded(lambda: direct(first, last, version), limit_s)
            except NoRangesError:
                data = bounded(lambda: direct(0, None, version), limit_s)
        elif first or last is not None:
            data = call(url, "read", "cat_file", repeat=False, start=first, end=last)
        else:
            data = call(url, "read", "cat_file", repeat=False)
        if is_range and stop is not None:
            if len(data) > stop - start:  # of a server that ignores ranges, as `python -m http.server`
                _ranges[split_url(url)[0]] = False
                data = data[start:stop]
            _ranges.setdefault(split_url(url)[0], True)
        if stop is not None and len(data) != stop - start and not to_the_end:
            raise _short(url, len(data), stop - start)
        return data

    try:
        return repeated(url, "read", attempt)
    except RemoteError as error:
        if error.status == 412:
            raise changed(url) from error
        raise


def reads_ranges(url: str) -> bool:
    """Return False if the store has not answered a request for a range, but one for the whole object."""
    return _ranges.get(split_url(url)[0], True)


def checks_versions(url: str) -> bool:
    """Return whether `read` compares the version of an object."""
    return content_reader(url, attempt_s()) is not None


def read_many(urls: Sequence[str]) -> list[bytes | memoryview]:
    """Return the bytes of several small objects, which are read at the same time."""
    return concurrently(((read, url) for url in urls), most=_CONCURRENT_SMALL)


def download(info: ObjectInfo, path: str, tick: Callable[[int], object] | None = None) -> None:
    """Write the content of an object to a local file.

    Parameters
    ----------
    info : ObjectInfo
        The object, as it was found.
    path : str
        The file, which is created or overwritten, not synced. After an error its content is undefined.
    tick : callable, optional
        Called with the number of bytes of each range, in any thread; its exception ends the download.

    Raises
    ------
    RemoteError
        The object has another version or size than `info`, or cannot be read.
    """
    starts = range(0, info.size_bytes, PART_BYTES)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(fd, info.size_bytes)

        def fetch(start: int) -> None:
            stop = min(start + PART_BYTES, info.size_bytes)
            whole = info.size_bytes <= PART_BYTES
            data = memoryview(read(info.url, start, stop, version=info.version, whole=whole))
            while data:
                data = data[os.pwrite(fd, data, stop - len(data)) :]
            if tick is not None:
                tick(stop - start)

        if len(starts) <= 1 or split_url(info.url)[0] not in _ranges:
            for start in starts[:1]:
                fetch(start)
            starts = starts[1:]
        is_checked = info.size_bytes > 0 and checks_versions(info.url)
        if starts and not reads_ranges(info.url):
            is_checked = False
            call(info.url, "read", "get_file", path)
            if os.fstat(fd).st_size != info.size_bytes:
                raise changed(info.url)
        elif starts:
            with Tasks[None](min(4, len(starts)), "shardkeep-remote") as tasks:
                for _ in tasks.run((fetch, start) for start in starts):
                    pass
    finally:
        os.close(fd)
    if is_checked:
        return
    now = stat(info.url)
    if (now.version, now.size_bytes) != (info.version, info.size_bytes):
        raise changed(info.url)


def changed(url: str) -> RemoteError:
    """Return the error for an object that is not the one that was found before."""
    return RemoteError(
        f"{display(url)} has changed while it was in use: its version or size is another; let its writer"
        " finish, and open it again",
        path=display(url),
    )


def _short(url: str, has: int, expected: int) -> RemoteError:
    failure = RemoteError(
        f"cannot read {display(url)}: the store returned {has:,} bytes of {expected:,}; it may be overloaded,"
        " or the object has become shorter: try again later",
        path=display(url),
    )
    failure.transient = True
    return failure


def concurrently(calls: Iterable[tuple[Any, ...]], *, most: int = CONCURRENT) -> list[Any]:
    """Return the results of calls, each a function and its arguments, of which `most` run at once."""
    pending = list(calls)
    if len(pending) <= 1:
        return [function(*arguments) for function, *arguments in pending]
    with Tasks[Any](min(most, len(pending)), "shardkeep-remote") as tasks:
        return list(tasks.run(pending))

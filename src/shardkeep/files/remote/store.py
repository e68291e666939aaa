"""Objects of remote stores: their sizes and versions, and reads, through fsspec.

**Options.** Credentials, endpoints and other options come from where the back ends of fsspec take them: the
environment, their own files, and the configuration of fsspec (``FSSPEC_S3_ENDPOINT_URL``).

**Time.** An operation ends with an error after ``SHARDKEEP_REMOTE_TIMEOUT_S`` seconds (120 by default),
repeats included; each attempt has a third of that. A download is divided into ranges, and each range is an
operation. Answers with a status of 5xx or 429, resets, short bodies and silence are repeated, after pauses
that double and vary at random; other answers are final.

**Processes.** A file system of fsspec has threads and connections, which do not survive a fork: it belongs to
the process that made it. A child makes its own.

**Signals.** The main thread waits for another thread, as in `shardkeep.files.threads.tasks`: an exception of
a signal handler in the main thread leaves no lock of fsspec taken.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from shardkeep._extras import import_extra
from shardkeep.errors import NotFoundError, PlanError, RemoteError
from shardkeep.files.kinds.urls import display, join_url, split_url, url_name, url_parent
from shardkeep.files.remote.errors import converted, silent
from shardkeep.files.threads.tasks import Tasks

__all__ = [
    "ObjectInfo",
    "call",
    "changed",
    "download",
    "list_folder",
    "list_objects",
    "read",
    "read_many",
    "repeated",
    "stat",
    "stat_many",
    "timeout_s",
]

_Result = TypeVar("_Result")

# Requests at the same time of one call. Stores answer each slowly, and many at once fast.
CONCURRENT = 16
# Length of a range of a download: an attempt is repeated as a whole.
PART_BYTES = 8 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 8.0
_ATTEMPTS_IN_TIME = 3
_VERSIONS = ("ETag", "etag", "e_tag", "checksum", "md5Hash", "generation", "CRC")
_TIMES = ("LastModified", "last_modified", "mtime", "modified", "modification_time", "updated", "created")


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


def timeout_s() -> float:
    """Return the time limit of an operation, from ``SHARDKEEP_REMOTE_TIMEOUT_S``."""
    text = os.environ.get("SHARDKEEP_REMOTE_TIMEOUT_S") or "120"
    try:
        limit_s = float(text)
    except ValueError:
        limit_s = 0.0
    if not 0 < limit_s < float("inf"):
        raise PlanError(f"SHARDKEEP_REMOTE_TIMEOUT_S={text!r} is not valid: use a number of seconds above 0")
    return limit_s


# -- one operation -----------------------------------------------------------------------------------------


def call(url: str, what: str, function: str, *args: Any, repeat: bool = True, **kwargs: Any) -> Any:
    """Call a method of the file system of a URL with the path of its object.

    Parameters
    ----------
    url : str
    what : str
        The operation, for errors: "read", "list".
    function : str
        Name of the method, as "cat_file".
    *args, **kwargs
        Arguments after the path.
    repeat : bool
        Repeat the call after transient errors. False if the call is not idempotent.

    Raises
    ------
    NotFoundError, ExistsError, MissingExtraError, RemoteError
        The error of the back end; see `shardkeep.files.remote.errors`.
    """

    def attempt(limit_s: float) -> Any:
        system, path = _system(url)
        if not system.async_impl or not hasattr(system, "_" + function):
            return _in_thread(lambda: getattr(system, function)(path, *args, **kwargs), limit_s)
        method = getattr(system, "_" + function)

        def wait() -> Any:
            from fsspec.asyn import sync

            return sync(system.loop, method, path, *args, timeout=limit_s, **kwargs)

        if threading.current_thread() is threading.main_thread():
            return _in_thread(wait, limit_s + 2)  # `sync` itself counts whole seconds
        return wait()

    return repeated(url, what, attempt, repeat=repeat)


def repeated(url: str, what: str, attempt: Callable[[float], _Result], *, repeat: bool = True) -> _Result:
    """Return the result of `attempt`, which is called again after transient errors until the time limit."""
    limit_s = timeout_s()
    end_s = time.monotonic() + limit_s
    attempt_s = limit_s / _ATTEMPTS_IN_TIME if repeat else limit_s
    for number in count():
        try:
            return attempt(max(min(attempt_s, end_s - time.monotonic()), 0.001))
        except _SilentError:
            failure: Exception = silent(what, url, limit_s)
            cause: Exception | None = None
        except Exception as error:
            failure, cause = converted(error, what, url), error
            if type(error).__name__ == "FSTimeoutError":
                failure = silent(what, url, limit_s)
        pause_s = min(_FIRST_PAUSE_S * 2**number, _LONGEST_PAUSE_S) * random.uniform(0.5, 1.5)
        transient = isinstance(failure, RemoteError) and failure.transient
        if not repeat or not transient or time.monotonic() + pause_s >= end_s:
            raise failure from (None if failure is cause else cause)
        time.sleep(pause_s)
    raise AssertionError


def _in_thread(function: Callable[[], _Result], limit_s: float) -> _Result:
    """Call a function in a thread, which is left alone if it does not end in time."""
    outcomes: SimpleQueue[tuple[_Result | None, BaseException | None]] = SimpleQueue()

    def run() -> None:
        try:
            outcomes.put((function(), None))
        except BaseException as error:
            outcomes.put((None, error))

    threading.Thread(target=run, name="shardkeep-remote", daemon=True).start()
    try:
        result, error = outcomes.get(timeout=limit_s)
    except Empty:
        raise _SilentError from None
    if error is None:
        return result  # type: ignore[return-value]
    try:
        raise error
    finally:
        del error  # it refers to this frame


class _SilentError(Exception):
    """No answer within the time of an attempt; never leaves this module."""


# -- file systems ------------------------------------------------------------------------------------------

_systems: dict[tuple[int, str, str], Any] = {}
_making = threading.Lock()


def _system(url: str) -> tuple[Any, str]:
    """Return the file system of this process for a URL, and the path of the object in it."""
    before, path, after = split_url(url)
    # fsspec makes one for each thread, with its own connections.
    key = os.getpid(), before, after
    system = _systems.get(key)
    if system is None:
        core = import_extra("fsspec.core", f"{display(url)} is a URL, which", display(url))
        with _making:
            system = _systems.get(key)
            if system is None:
                try:
                    system = core.url_to_fs(url)[0]
                except ValueError as error:  # an unknown protocol
                    raise PlanError(f"cannot open {display(url)}: {error}", path=display(url)) from None
                _systems[key] = system
    filters = before.rfind("::") + 2 if "::" in before else 0
    return system, system._strip_protocol(before[filters:] + path)


def _forget_in_child() -> None:
    global _making
    _making = threading.Lock()
    _systems.clear()


os.register_at_fork(after_in_child=_forget_in_child)


def _drop_listings() -> None:
    """Remove the listings that fsspec keeps: another process may have written an object since."""
    for system in list(_systems.values()):
        system.invalidate_cache()


# -- sizes and versions -------------------------------------------------------------------------------


def stat(url: str) -> ObjectInfo:
    """Return size and version of an object.

    Raises
    ------
    NotFoundError, RemoteError, MissingExtraError
    """
    _drop_listings()
    raw = call(url, "find", "info")
    if raw.get("type") == "directory":
        raise NotFoundError(f"{display(url)} is a folder, not an object", path=display(url))
    return _info(url, raw)


def stat_many(urls: Sequence[str]) -> list[ObjectInfo]:
    """Return size and version of objects, by one listing where several are in one folder."""
    folders: dict[str, list[str]] = {}
    for url in urls:
        folders.setdefault(url_parent(url), []).append(url)
    known: dict[str, ObjectInfo] = {}
    for folder, members in folders.items():
        if len(members) > 2 and not folder.lower().startswith(("http:", "https:")):
            known.update((info.url, info) for info in list_folder(folder))
    missing = [url for url in urls if url not in known]
    known.update(zip(missing, _concurrently((stat, url) for url in missing), strict=True))
    return [known[url] for url in urls]


def list_objects(url: str) -> list[ObjectInfo]:
    """Return the objects that match a pattern, or those directly in a folder, sorted by URL.

    Raises
    ------
    RemoteError, MissingExtraError
        A pattern without a match, and an empty folder, are not errors.
    """
    return _matches(url) if glob.has_magic(split_url(url)[1]) else list_folder(url)


def _matches(pattern: str) -> list[ObjectInfo]:
    before, path, after = split_url(pattern)
    magic = re.search(r"[*?\[]", path)
    assert magic is not None
    literal = path[: path.rfind("/", 0, magic.start()) + 1].rstrip("/")
    folder = before + literal + after
    if "/" not in path[magic.start() :]:
        # A listing of the folder, since `glob` of some back ends makes several requests.
        pattern_of_name = path[len(literal) :].lstrip("/")
        found = [
            one for one in list_folder(folder) if fnmatch.fnmatchcase(url_name(one.url), pattern_of_name)
        ]
    else:
        _drop_listings()
        raw: dict[str, Any] = call(pattern, "list", "glob", detail=True)
        found = _infos(folder, raw.values())
    return sorted(found, key=lambda info: info.url)


def list_folder(folder: str) -> list[ObjectInfo]:
    """Return the objects directly in a folder, sorted by URL."""
    _drop_listings()
    try:
        raw = call(folder, "list", "ls", detail=True)
    except NotFoundError:
        return []
    return sorted(_infos(folder, raw), key=lambda info: info.url)


def _infos(folder: str, raws: Iterable[dict[str, Any]]) -> list[ObjectInfo]:
    _, base = _system(folder)
    files = [raw for raw in raws if raw.get("type") != "directory"]
    urls = []
    for raw in files:
        # `base` has no host with sftp and others, as the names of the listing. HTTP lists whole URLs.
        name = str(raw["name"])
        below = name[len(base) :] if name.startswith(base) else name.rpartition("/")[2]
        urls.append(join_url(folder, below.lstrip("/")))
    pairs = [(url, raw) for url, raw in zip(urls, files, strict=True) if not url.endswith("/")]
    found = [_info(url, raw) for url, raw in pairs if raw.get("size") is not None]
    return found + _concurrently((stat, url) for url, raw in pairs if raw.get("size") is None)


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


def read(url: str, start: int = 0, stop: int | None = None) -> bytes:
    """Return the bytes of an object, or of a range of it.

    Raises
    ------
    RemoteError
        Also if the store returns fewer bytes than the range has, again and again.
    """
    if stop is not None and stop <= start:
        return b""
    if stop is None and not start:
        return bytes(call(url, "read", "cat_file"))

    def attempt(_: float) -> bytes:
        data = bytes(call(url, "read", "cat_file", start=start, end=stop))
        if stop is not None and len(data) != stop - start:
            raise _short(url, len(data), stop - start)
        return data

    return repeated(url, "read", attempt)


def read_many(urls: Sequence[str]) -> list[bytes]:
    """Return the bytes of several objects, which are read at the same time."""
    return _concurrently((read, url) for url in urls)


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
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:

        def fetch(start: int) -> None:
            stop = min(start + PART_BYTES, info.size_bytes)
            data = memoryview(read(info.url, start, stop))
            while data:
                data = data[os.pwrite(fd, data, stop - len(data)) :]
            if tick is not None:
                tick(stop - start)

        if len(starts) <= 1:
            for start in starts:
                fetch(start)
        else:
            with Tasks[None](min(4, len(starts)), "shardkeep-remote") as tasks:
                for _ in tasks.run((fetch, start) for start in starts):
                    pass
    finally:
        os.close(fd)
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


def _concurrently(calls: Iterable[tuple[Any, ...]]) -> list[Any]:
    pending = list(calls)
    if len(pending) <= 1:
        return [function(*arguments) for function, *arguments in pending]
    with Tasks[Any](min(CONCURRENT, len(pending)), "shardkeep-remote") as tasks:
        return list(tasks.run(pending))

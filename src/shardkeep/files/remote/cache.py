"""Local copies of remote objects, shared by the processes of a host.

::

    $SHARDKEEP_CACHE_DIR/           by default $XDG_CACHE_HOME/shardkeep/shards
        objects/3f/3f09…            content of one version of one object; .lock and .part while it is fetched
        views/4711-8c12/            of one process: .lock, which it holds until it ends, and its views
        views/4711-8c12/0/a.tfrecord    a hard link to an object, under the name that it has in its store
        room.lock, used             held while objects are removed; bytes in objects/, at most

**Once.** The process that has the lock of an object fetches it, and the others wait. The kernel frees the
lock of a process that dies; another then begins again. An object appears under its name by a rename, so that
a part of one is never read.

**Bounded.** Before an object is fetched, those that were used least recently are removed, until all fit
in ``SHARDKEEP_CACHE_BYTES`` (by default half of the space that is free without the cache). An object with a
link in a view is in use, and stays; if all are in use, the cache grows beyond its limit. The views of a
process that has ended are removed with their links: their lock is free.

**Versions.** The name of an object is a hash of URL, version and size: after a change in the store it is
another object, and the old one is removed some day.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence

from shardkeep._paths_in_messages import forget_folder, show_as
from shardkeep.errors import LockTimeoutError, PlanError, UntrustedFileError
from shardkeep.files.durable import durability_error
from shardkeep.files.kinds.urls import display, split_url
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.remote.store import ObjectInfo, download
from shardkeep.quantities import human_bytes, listed

__all__ = [
    "Tick",
    "View",
    "cache_bytes",
    "cache_folder",
    "limit_bytes",
    "object_path",
    "present",
    "require_room",
    "user_folder",
]

Tick = Callable[[int], object]

_WAIT_S = 0.5


def cache_folder() -> str:
    """Return the folder of the cache, from ``SHARDKEEP_CACHE_DIR``."""
    named = os.environ.get("SHARDKEEP_CACHE_DIR")
    return os.path.abspath(named) if named else os.path.join(user_folder(), "shards")


def user_folder() -> str:
    """Return ``$XDG_CACHE_HOME/shardkeep``, by default ``~/.cache/shardkeep``."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(root, "shardkeep")


def cache_bytes(root: str, used_bytes: int) -> int:
    """Return the limit of a cache that has `used_bytes`, from ``SHARDKEEP_CACHE_BYTES``."""
    text = os.environ.get("SHARDKEEP_CACHE_BYTES")
    if not text:
        disk = os.statvfs(root)
        return (disk.f_bavail * disk.f_frsize + used_bytes) // 2
    if not text.isdecimal() or not int(text):
        raise PlanError(f"SHARDKEEP_CACHE_BYTES={text!r} is not valid: use a number of bytes above 0")
    return int(text)


def limit_bytes() -> int:
    """Return the limit of the cache now."""
    root = cache_folder()
    return cache_bytes(root, _noted_bytes(root) or 0)


def require_room(infos: Sequence[ObjectInfo]) -> None:
    """Raise if objects that are used together do not fit on the disk of the cache.

    Raises
    ------
    PlanError
        The message has the sizes.
    """
    root = cache_folder()
    needed = sum(info.size_bytes for info in infos)
    used = _noted_bytes(root) or 0
    disk = os.statvfs(root)
    room = disk.f_bavail * disk.f_frsize + used
    if needed > room:
        first = display(infos[0].url)
        named = listed([first], len(infos))
        raise PlanError(
            f"{named}: {human_bytes(needed)} are needed at the same time, and the disk of the cache"
            f" {root!r} has room for {human_bytes(room)}: pass fewer objects in a call, or name a folder of"
            " another disk with SHARDKEEP_CACHE_DIR",
            path=first,
        )


def _noted_bytes(root: str) -> int | None:
    _require_own_folder(root)
    try:
        with open(os.path.join(root, "used")) as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def object_path(info: ObjectInfo) -> str:
    """Return the path that a version of an object has in the cache."""
    name = f"{display(info.url)}\0{split_url(info.url)[2]}\0{info.version}\0{info.size_bytes}"
    key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:40]
    return os.path.join(cache_folder(), "objects", key[:2], key)


class View:
    """A folder with objects of one remote folder, which stay in the cache until the view is closed.

    Parameters
    ----------
    url : str
        The remote folder. Errors show paths of the view as names below it.

    Notes
    -----
    A view belongs to the process that made it. A child may read from it after a fork, and then it stays until
    both have ended.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/") if split_url(url)[1] else url
        self.folder = _new_folder()
        self.reserved: dict[str, ObjectInfo] = {}
        self.pid = os.getpid()
        show_as(self.folder, display(self.url))
        self._closed = weakref.finalize(self, _remove_view, self.folder, self.pid)
        _views.add(self)

    def path(self, url: str) -> str:
        """Return the path of an object in the view, which need not be there yet."""
        name = split_url(url)[1][len(split_url(self.url)[1]) :].strip("/")
        parts = name.split("/")
        if any(part in ("", ".", "..") for part in parts):
            message = f"{display(url)} has a name that no file can have: copy it to another name"
            raise PlanError(message, path=display(url))
        return os.path.join(self.folder, *parts)

    def fetch(self, info: ObjectInfo, tick: Tick | None = None) -> str:
        """Return the path of an object in the view, after it was fetched into the cache.

        Parameters
        ----------
        info : ObjectInfo
        tick : callable, optional
            Called with the number of bytes of each range that is fetched, and with 0 while another process
            fetches the object; its exception ends the call.

        Raises
        ------
        NotFoundError, RemoteError
            The object has changed since `info` was found, or cannot be read.
        DurabilityError
            The disk is full.
        """
        path = self.path(info.url)
        if os.path.exists(path):
            return path
        os.makedirs(os.path.dirname(path), exist_ok=True)
        content = object_path(info)
        while not _link(content, path):
            _fetch_once(info, content, tick or (lambda _: None))
        return path

    def reserve(self, info: ObjectInfo, head: bytes | memoryview = b"") -> None:
        """Put a file of zeros after `head` in the place of an object, which is here while it is `present`."""
        path = self.path(info.url)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _make_file(path, info.size_bytes, head)
        self.reserved[path] = info

    def drop(self, url: str) -> None:
        """Remove the link to an object; it stays in the cache as long as there is room."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path(url))

    def close(self) -> None:
        """Remove the view, unless a child of a fork may use it."""
        self._closed()


@contextlib.contextmanager
def present(path: str, tick: Tick) -> Iterator[bool]:
    """Fetch an object that was reserved, and drop it at the end; yield False for any other file.

    Raises
    ------
    NotFoundError, RemoteError, DurabilityError
        As `View.fetch`.
    """
    view = next((one for one in list(_views) if path in one.reserved), None)
    if view is None:
        yield False
        return
    info = view.reserved[path]
    view.drop(info.url)
    view.fetch(info, tick)
    try:
        yield True
    finally:
        view.drop(info.url)
        view.reserve(info)


def _link(content: str, path: str) -> bool:
    try:
        os.link(content, path)
        os.utime(content, ns=(time.time_ns(), os.stat(content).st_mtime_ns))
    except FileNotFoundError:
        return os.path.exists(path)  # removed right after it was linked: the link has its content
    except FileExistsError:
        return True  # by another thread
    except OSError as error:
        raise durability_error("link a cached object to", path, error) from error
    return True


def _fetch_once(info: ObjectInfo, content: str, tick: Tick) -> None:
    os.makedirs(os.path.dirname(content), mode=0o700, exist_ok=True)
    with _locked(content, tick):
        if os.path.exists(content):
            return
        part = content + ".part"
        try:
            _make_room(part, info.size_bytes)
            download(info, part, tick)
            os.rename(part, content)
        except OSError as error:
            if error.errno is None:  # of Shardkeep
                raise
            raise durability_error("write a cached copy of", display(info.url), error) from error
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(part)


@contextlib.contextmanager
def _locked(path: str, tick: Tick) -> Iterator[None]:
    lock = FileLock(path, timeout_s=_WAIT_S)
    while True:
        try:
            lock.acquire()
            break
        except LockTimeoutError:
            tick(0)
    try:
        yield
    finally:
        lock.release()


# -- room ------------------------------------------------------------------------------------------------


def _make_room(part: str, size_bytes: int) -> None:
    """Remove objects until another one fits, and make the file of that one."""
    root = cache_folder()
    with _locked(os.path.join(root, "room"), lambda _: None):
        used = _noted_bytes(root)
        if used is None:
            used = sum(status.st_size for _, status in _objects(root))
        limit = cache_bytes(root, used)
        if used + size_bytes > limit:
            used = _evict(root, limit - size_bytes)
        # Before the object is fetched: after a crash the number is too large, and the next eviction counts.
        with open(os.path.join(root, "used"), "w") as file:
            file.write(str(used + size_bytes))
        # With its size, so that an eviction for another object counts all of it.
        _make_file(part, size_bytes)


def _make_file(path: str, size_bytes: int, head: bytes | memoryview = b"") -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, head)
        os.ftruncate(fd, size_bytes)
    finally:
        os.close(fd)


def _evict(root: str, limit: int) -> int:
    """Remove the objects that were used least recently down to 0.9 of a limit; return the bytes that stay."""
    _remove_dead_views(root)
    objects = sorted(_objects(root), key=lambda one: one[1].st_atime_ns)
    used = sum(status.st_size for _, status in objects)
    for path, status in objects:
        if used <= 0.9 * limit:
            break
        if status.st_nlink == 1 and not _is_being_fetched(path, status):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            used -= status.st_size
    return used


def _is_being_fetched(path: str, status: os.stat_result) -> bool:
    # A part whose process has died is written again by the next one that wants the object.
    return path.endswith(".part") and time.time() - status.st_mtime < 3600


def _objects(root: str) -> Iterator[tuple[str, os.stat_result]]:
    for folder, _, names in os.walk(os.path.join(root, "objects")):
        for name in names:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):
                if not name.endswith(".lock"):
                    yield path, os.stat(path)


# -- views -----------------------------------------------------------------------------------------------

_views: weakref.WeakSet[View] = weakref.WeakSet()
_shared: set[str] = set()
_process: tuple[str, str, int] | None = None  # root, folder and descriptor of its lock
_making = threading.Lock()


def _new_folder() -> str:
    """Return a new folder for a view, in that of this process, which exists until the process has ended."""
    global _process
    with _making:
        root = cache_folder()
        _require_own_folder(root)
        views = os.path.join(root, "views")
        try:
            if _process is None or _process[0] != root:
                os.makedirs(views, mode=0o700, exist_ok=True)
                _remove_dead_views(root)
                _process = root, *_locked_folder(views)
            return tempfile.mkdtemp(dir=_process[1])
        except OSError as error:
            raise durability_error("create a folder in the cache", root, error) from error


def _locked_folder(views: str) -> tuple[str, int]:
    """Make a folder whose lock is held, and return the descriptor of the lock."""
    while True:
        folder = tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=views)
        with contextlib.suppress(FileNotFoundError):
            # A forked child inherits the lock, a program that is started does not.
            fd = os.open(os.path.join(folder, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            if os.fstat(fd).st_nlink:
                return folder, fd
            os.close(fd)
        # Another process found the folder before it was locked, and removed it.


def _require_own_folder(root: str) -> None:
    try:
        os.makedirs(root, mode=0o700, exist_ok=True)
        status = os.stat(root)
    except OSError as error:
        raise durability_error("create the cache", root, error) from error
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UntrustedFileError(
            f"other users may write into the cache {root!r}: chmod go-w it, or name another folder with"
            " SHARDKEEP_CACHE_DIR",
            path=root,
        )


def _remove_dead_views(root: str) -> None:
    views = os.path.join(root, "views")
    for name in os.listdir(views):
        folder = os.path.join(views, name)
        with contextlib.suppress(OSError):
            fd = os.open(os.path.join(folder, ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(fd)


def _remove_view(folder: str, pid: int) -> None:
    if pid == os.getpid() and folder not in _shared:
        forget_folder(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _share_with_child() -> None:
    _shared.update(view.folder for view in _views)


def _forget_in_child() -> None:
    global _process, _making
    _process, _making = None, threading.Lock()


os.register_at_fork(after_in_parent=_share_with_child, after_in_child=_forget_in_child)

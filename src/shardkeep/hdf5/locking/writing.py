"""Opening of an HDF5 file for writing, under two locks that are taken before the first byte is written.

- The sidecar lock (``path.lock``) excludes every other writer that uses Shardkeep, whatever
  ``HDF5_USE_FILE_LOCKING`` says, and identifies its holder, also on another host.
- HDF5's own ``flock`` on the file excludes every other program in which HDF5 locks, such as plain h5py.

``h5py.File(path, "w")`` truncates before it asks for the lock (h5py#1864). Here the lock is taken first;
under it the file is truncated and filled with an empty HDF5 file, created in memory; then HDF5 opens that as
"r+" and locks it. Another process may take the lock between the two, and finds a complete empty file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import tempfile
import time
from typing import Any, NamedTuple, cast

import h5py

from shardkeep.errors import ExistsError, FormatError, LockError, NotFoundError
from shardkeep.files.durable import durability_error, durably, write_all
from shardkeep.files.kinds.special import refuse_special
from shardkeep.files.locks.lock import FileLock, IfUnsafe
from shardkeep.files.locks.probe import HELD, lock_fault_of, locks_are_trusted
from shardkeep.files.user_warning import warn_user
from shardkeep.hdf5.journal.live_view import recover_before_writing
from shardkeep.hdf5.journal.paths import log_path, real_name
from shardkeep.hdf5.locking.damage import refuse_damage
from shardkeep.hdf5.locking.handles import descriptor_of, exempt
from shardkeep.hdf5.locking.holders import conflict, openers_of
from shardkeep.hdf5.locking.mode import VARIABLE, LockingMode, warn_if_stale
from shardkeep.hdf5.locking.open_errors import flock_errno, open_error
from shardkeep.hdf5.locking.reading import pauses
from shardkeep.hdf5.read_errors import is_of_hdf5

__all__ = ["open_for_writing"]

_AT_CREATION = {"userblock_size", "track_order", "track_times"} | {
    f"fs_{name}" for name in ("page_size", "persist", "strategy", "threshold")
}


class Opened(NamedTuple):
    """A file opened for writing, its descriptor and sidecar lock, and the text of `File.locking`."""

    file_id: h5py.h5f.FileID
    fd: int | None
    lock: FileLock | None
    locking: str


def open_for_writing(
    path: str, mode: str, timeout_s: float | None, if_unsafe: str, options: dict[str, Any]
) -> Opened:
    """Lock a file and open it.

    Raises
    ------
    LockTimeoutError
        Another process has it open; not a byte was touched.
    LockError
        Locks of the file system do not exclude all other processes.
    ExistsError, NotFoundError, FormatError
        "x" and it exists; "r+" and it does not; it is a folder, a device, a pipe or a socket.
    DurabilityError
        It cannot be created.
    """
    locking = warn_if_stale()
    fault = _check_file_system(path, if_unsafe)
    refuse_special(path, FormatError)
    there = os.path.exists(path)
    if there and mode == "x":
        raise _taken(path)
    if not there and mode == "r+":
        raise NotFoundError(f"file {path!r} does not exist: open it with mode 'a' to create it", path=path)
    if there and mode != "x" and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "cannot be written: get the right to write it", path)
    lock = _sidecar(path, timeout_s, if_unsafe)
    made = False
    try:
        _settle(path, mode, timeout_s, lock)
        if mode in ("w", "x") or not there:
            made = _make_empty(path, mode, timeout_s, options, locking)
        file_id = _open(path, timeout_s, options)
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                os.unlink(path)
        if lock is not None:
            lock.release()
        raise
    fd = descriptor_of(file_id)
    if locking.effect == "off":
        message = f"{path!r} is written while {VARIABLE} switches HDF5's locks off: programs that do not use"
        warn_user(f"{message} Shardkeep may write it too; unset the variable")
        text = f"sidecar only ({VARIABLE} switches flock off)"
    else:
        text = "flock, exclusive" if fault is None else f"flock, exclusive, but {fault}"
    return Opened(file_id, fd, lock, text)


def _taken(path: str) -> ExistsError:
    return ExistsError(f"{path!r} exists: choose another name, or open it with mode 'a'", path=path)


def _check_file_system(path: str, if_unsafe: str) -> str | None:
    folder = os.path.dirname(path) or "."
    try:
        fault = lock_fault_of(folder)
    except OSError:
        message = f"cannot write {path!r}: folder {folder!r} does not exist; create it first"
        raise NotFoundError(message, path=path) from None
    if fault is not None and if_unsafe == "refuse" and not locks_are_trusted():
        message = (
            f"writing {path!r} in place is refused, since locks would not exclude other processes: {fault};"
            " write a file per process (hdf5.WorkerFile) and merge, send rows to one writer (a collector),"
            " or, if all use this one mount, set SHARDKEEP_LOCKS=trust"
        )
        raise LockError(message, path=path)
    return fault


def _settle(path: str, mode: str, timeout_s: float | None, lock: FileLock | None) -> None:
    if lock is not None:
        recover_before_writing(path, timeout_s, emptied=mode == "w")
    elif os.path.exists(log_path(path)):
        message = f"{path!r} lacks commits that its collector left in {log_path(path)!r}"
        raise LockError(
            f"{message}: run shardkeep collect {path} --recover as a user who may write there", path=path
        )


def _sidecar(path: str, timeout_s: float | None, if_unsafe: str) -> FileLock | None:
    path = real_name(path)
    folder = os.path.dirname(path) or "."
    if not os.access(folder, os.W_OK):
        return None  # only the file is writable, not its folder: there is only HDF5's lock
    return FileLock(path, timeout_s=timeout_s, if_unsafe=cast(IfUnsafe, if_unsafe)).acquire()


def _make_empty(
    path: str, mode: str, timeout_s: float | None, options: dict[str, Any], locking: LockingMode
) -> bool:
    """Make `path` an empty HDF5 file, under its lock; return whether it was created."""
    image = _empty_image(options)
    made = True
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        fd = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        if mode == "x":
            raise _taken(path) from None
        if mode == "a":
            return False  # another process created it just now
        made = False
        try:
            fd = os.open(path, flags)
        except OSError as error:
            raise open_error(path, error, writing=True) from error
    except OSError as error:
        raise durability_error("create", path, error) from error
    try:
        if locking.effect == "off":
            # Without locks, only processes that can be seen are excluded.
            if any(one.pid != os.getpid() for one in openers_of(path)) or _open_here(fd):
                raise conflict(path, writing=True)
        else:
            _flock(fd, path, timeout_s)
        with durably("write", path):
            os.ftruncate(fd, 0)
            write_all(fd, image, 0)
        return made
    except BaseException:
        if made:
            with contextlib.suppress(OSError):
                os.unlink(path)
        raise
    finally:
        os.close(fd)


def _flock(fd: int, path: str, timeout_s: float | None) -> None:
    pause = pauses(timeout_s)
    start = time.monotonic()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in HELD:
                text = OSError(error.errno, f"unable to lock file, errno = {error.errno}")
                raise open_error(path, text, writing=True) from error
            if next(pause, None) is None:
                raise conflict(path, writing=True, waited_s=time.monotonic() - start) from error


def _open_here(fd: int) -> bool:
    """Return whether this process has another descriptor of the file."""
    mine = os.fstat(fd)
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []:
        with contextlib.suppress(OSError):
            if int(name) != fd and os.path.samestat(os.fstat(int(name)), mine):
                return True
    return False


def _empty_image(options: dict[str, Any]) -> bytes:
    options = {name: value for name, value in options.items() if name in _AT_CREATION | {"libver"}}
    with exempt():
        if options:
            # Not with the core driver: it has no user block, and HDF5 1.14 damages the checksum of a later
            # superblock when it returns such an image.
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "empty.h5")
                h5py.File(path, "w", **options).close()
                with open(path, "rb") as file:
                    return file.read()
        with h5py.File("empty", "w", driver="core", backing_store=False) as made:
            made.flush()
            return bytes(made.id.get_file_image())


def _open(path: str, timeout_s: float | None, options: dict[str, Any]) -> h5py.h5f.FileID:
    options = {name: value for name, value in options.items() if name not in _AT_CREATION}
    pause = pauses(timeout_s)
    start = time.monotonic()
    while True:
        refuse_damage(path)
        try:
            with exempt():
                return h5py.File(path, "r+", **options).id
        except Exception as error:
            if not is_of_hdf5(error) and not isinstance(error, PermissionError):
                raise
            if flock_errno(error) in HELD and next(pause, None) is not None:
                continue
            waited_s = time.monotonic() - start
            raise open_error(path, error, writing=True, waited_s=waited_s) from error

"""Advisory locks with information about their holders.

A lock on ``path`` is a ``flock`` on the sidecar file ``path.lock``, not on the file itself: the
file may be replaced by a rename, and HDF5 itself takes a ``flock`` on it. The kernel releases the lock when
its process ends, in any way, so no lock is ever stale.

The sidecar holds one JSON line per holder, for users and for `LockTimeoutError`::

    {"host": "node7", "pid": 4711, "command": "python train.py", "since": 1764283902.5}

**The sidecar is removed at release** by its last holder. A waiter may then get the lock of a file that no
longer has a name, so after each ``flock`` the locked file is compared with the file of that name, and the
attempt is repeated if they differ. After SIGKILL the sidecar stays, unlocked, until the next holder.

**fork.** A ``flock`` belongs to the open file description, which parent and child share. The
child's copy is closed right after the fork, so it neither holds the lock nor can release it; the
parent unlocks explicitly, so a child between fork and exec cannot keep it either.

**Network file systems.** Whether ``flock`` excludes other hosts depends on the file system and its
mount options. Where it does not, or where this is unknown, a lock is refused; `shardkeep.files.locks.probe`
decides, and ``if_unsafe`` and ``SHARDKEEP_LOCKS=trust`` override it.

**Other users.** The sidecar may belong to another user of the folder: ``flock`` needs only an open
descriptor. It is written only by its owner, and never opened through a link (`shardkeep.files.sidecar`). A
user with permission to rename files in the folder can remove the lock of its holder, as well as the data.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from numbers import Real
from typing import Literal

from shardkeep.errors import LockError, LockTimeoutError, NotFoundError, PlanError, UntrustedFileError
from shardkeep.files.durable import durability_error
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.locks.holder import LOCK_FILE, describe_holder, read_holder, write_holder
from shardkeep.files.locks.probe import HELD, lock_fault_of, locks_are_trusted, second_lock_is_refused
from shardkeep.files.sidecar import ANY_USER, make_sidecar, open_sidecar, user_name
from shardkeep.files.user_warning import warn_user

__all__ = ["FileLock", "IfUnsafe", "lock"]

IfUnsafe = Literal["refuse", "warn", "trust"]

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.05


class FileLock:
    """The lock of a path; held from `acquire` to `release`, or for the body of a ``with``.

    Parameters
    ----------
    path : str or os.PathLike
        The path to lock; it need not exist, but its folder must. The sidecar is ``path + ".lock"``.
    shared : bool
        Several holders of a shared lock exclude exclusive ones, not each other.
    timeout_s : float or None
        How long to wait for other holders. 0 tries once, None waits without limit.
    if_unsafe : {"refuse", "warn", "trust"}
        What to do on a file system where ``flock`` does not, or may not, exclude all processes that see the
        file: raise `LockError`; warn (`RuntimeWarning`) and continue with a lock that may have no effect
        (`held` is False if even ``flock`` fails); or trust it. ``SHARDKEEP_LOCKS=trust`` in the environment
        selects "trust" for all locks.
    lock_path : str, optional
        Path of the sidecar, if it differs from the default.

    Raises
    ------
    LockTimeoutError
        Another holder has the lock: `holder` and the message have host, process, command and start time. Also
        for another object of the same process: a lock is not re-entrant.
    LockError
        The file system does not exclude other processes; the message has its type, mount point, the reason
        and advice. Raised before any file is created. Also if the file system refuses ``flock``.
    NotFoundError
        The folder does not exist.
    DurabilityError
        The sidecar cannot be created: no permission, a read-only or full file system.
    UntrustedFileError
        The sidecar is a link, a pipe or something else that another user may have prepared.

    Notes
    -----
    The lock is advisory: it excludes processes that use this class, or ``flock`` on the sidecar. After
    ``fork`` the child's object is not held. After a crash the lock is free.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "results.h5")
    >>> with FileLock(path) as mine:
    ...     try:
    ...         FileLock(path, timeout_s=0).acquire()
    ...     except LockTimeoutError as error:
    ...         error.holder["pid"] == os.getpid()
    True
    >>> mine.held
    False
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        shared: bool = False,
        timeout_s: float | None = 10.0,
        if_unsafe: IfUnsafe = "refuse",
        lock_path: str | None = None,
    ) -> None:
        if if_unsafe not in ("refuse", "warn", "trust"):
            raise PlanError(f'if_unsafe={if_unsafe!r} is not valid: use "refuse", "warn" or "trust"')
        if not (timeout_s is None or isinstance(timeout_s, Real)):
            raise PlanError(f"timeout_s must be a number of seconds or None, not {timeout_s!r:.60}")
        self.path = local_path(path)
        self.lock_path = lock_path or self.path + ".lock"
        self._where = os.path.abspath(self.lock_path)  # the program may change its directory
        self.shared = shared
        self.timeout_s = timeout_s
        self.if_unsafe: IfUnsafe = if_unsafe
        self._fd: int | None = None
        self._made = False

    @property
    def held(self) -> bool:
        """True if this object, in this process, holds the lock."""
        return self._fd is not None

    def acquire(self) -> FileLock:
        """Acquire the lock and return this object.

        Returns
        -------
        FileLock
            This object.

        Raises
        ------
        LockTimeoutError, LockError, NotFoundError, DurabilityError, UntrustedFileError
            As for the class.
        """
        if self._fd is not None:
            raise LockError(f"{self.lock_path!r} is held by this object already", path=self.path)
        trusted = self.if_unsafe == "trust" or locks_are_trusted()
        fault = None if trusted else self._fault()
        if fault is not None:
            self._unsafe(fault)
        try:
            fd = self._wait()
        except LockTimeoutError:
            raise
        except LockError as error:
            if self.if_unsafe != "warn":
                raise
            self._warn(str(error))
            return self
        self._fd = fd
        try:
            _held.add(self)
            # The file of another user is locked, but not written.
            if self._made or os.fstat(fd).st_uid == os.geteuid():
                write_holder(fd, shared=self.shared)
            if not (trusted or fault or second_lock_is_refused(fd, self._where)):
                self._unsafe("its flock succeeds for two holders at once and has no effect")
        except BaseException:  # Ctrl-C as well: without a return no caller releases the lock
            self.release()
            raise
        return self

    def _wait(self) -> int:
        start = time.monotonic()
        pause_s = _FIRST_PAUSE_S
        while True:
            fd = self._try()
            if fd is not None:
                return fd
            waited_s = time.monotonic() - start
            if self.timeout_s is not None and waited_s >= self.timeout_s:
                raise self._timeout(waited_s)
            left_s = pause_s if self.timeout_s is None else max(self.timeout_s - waited_s, 0.0)
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)

    def release(self) -> None:
        """Release the lock; without effect if it is not held (as in a forked child)."""
        fd, self._fd = self._fd, None
        _held.discard(self)
        if fd is None:
            return
        try:
            # Only the last holder may remove the name: another shared holder still needs it. On NFS an
            # exclusive lock is refused if the file of another user is only readable.
            with contextlib.suppress(OSError):
                if (not self.shared or self._flock(fd, fcntl.LOCK_EX)) and _has_name(fd, self._where):
                    os.unlink(self._where)
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            with contextlib.suppress(OSError):  # the lock is released all the same
                os.close(fd)

    def __enter__(self) -> FileLock:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        kind = "shared" if self.shared else "exclusive"
        return f"<FileLock {self.lock_path!r} {kind}, {'held' if self.held else 'not held'}>"

    def _fault(self) -> str | None:
        try:
            return lock_fault_of(os.path.dirname(self._where))
        except OSError:
            return None  # `_try` raises the error

    def _unsafe(self, fault: str) -> None:
        if self.if_unsafe == "warn":
            self._warn(f"a lock on {self.path!r} may have no effect: {fault}")
            return
        message = (
            f"a lock on {self.path!r} would have no effect: {fault}; put the file on another file system, use"
            " one file for each process, or replace it as a whole; if locks do exclude here, or all processes"
            " use this one mount, set SHARDKEEP_LOCKS=trust"
        )
        raise LockError(message, path=self.path)

    def _warn(self, message: str) -> None:
        warn_user(f"{message}; make sure that no other process writes it")

    def _try(self) -> int | None:
        try:
            fd = self._open()
        except (FileNotFoundError, NotADirectoryError):
            folder = os.path.dirname(self.lock_path) or "."
            message = f"cannot lock {self.path!r}: there is no folder {folder!r}; create it first"
            raise NotFoundError(message, path=self.path) from None
        except FileExistsError:
            return None  # created by another process at the same time
        except UntrustedFileError:
            raise
        except OSError as error:
            raise durability_error("create the lock of", self.path, error) from error
        try:
            operation = fcntl.LOCK_SH if self.shared else fcntl.LOCK_EX
            if self._flock(fd, operation) and _has_name(fd, self._where):
                taken, fd = fd, -1
                return taken
            return None
        finally:
            if fd >= 0:
                os.close(fd)

    def _open(self) -> int:
        self._made = False
        try:
            try:
                return open_sidecar(self._where, LOCK_FILE, os.O_RDWR | os.O_APPEND, owners=ANY_USER)
            except UntrustedFileError:
                raise
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EROFS):
                    raise
                # The file of another user may be only readable, which is sufficient for a lock.
                return open_sidecar(self._where, LOCK_FILE, owners=ANY_USER)
        except FileNotFoundError:
            fd = make_sidecar(self._where, os.O_RDWR | os.O_APPEND, mode=0o666)
        self._made = True
        return fd

    def _flock(self, fd: int, operation: int) -> bool:
        try:
            fcntl.flock(fd, operation | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in HELD:
                return False
            code = errno.errorcode.get(error.errno or 0, str(error.errno))
            message = (
                f"the file system of {self.lock_path!r} refuses locks ({code}): "
                "keep the file where flock works, or use one file for each process"
            )
            if error.errno == errno.EBADF:  # NFS: an exclusive lock needs a descriptor for writing
                owner = user_name(os.fstat(fd).st_uid)
                message = f"{self.lock_path!r} belongs to {owner}, and a lock needs write permission"
                message = f"{message}: give all users of the folder one group and umask 002"
            failure = LockError(message, path=self.path)
            failure.errno = error.errno
            raise failure from error
        return True

    def _timeout(self, waited_s: float) -> LockTimeoutError:
        holder = read_holder(self._where)
        who = describe_holder(holder)
        message = f"{self.path!r} is locked {who}; waited {waited_s:.1f} s: wait for it or end it"
        error = LockTimeoutError(message, path=self.path)
        error.holder = holder
        return error


def lock(
    path: str | os.PathLike[str],
    *,
    shared: bool = False,
    timeout_s: float | None = 10.0,
    if_unsafe: IfUnsafe = "refuse",
) -> FileLock:
    """Lock `path` for the body of a ``with`` statement; see `FileLock` for the guarantees.

    Parameters
    ----------
    path, shared, timeout_s, if_unsafe
        As for `FileLock`.

    Returns
    -------
    FileLock
        The lock, acquired by the ``with`` statement.

    Raises
    ------
    LockTimeoutError, LockError, NotFoundError, DurabilityError, UntrustedFileError
        As for `FileLock`; raised by the ``with`` statement.

    Examples
    --------
    >>> import os, tempfile
    >>> with lock(os.path.join(tempfile.mkdtemp(), "results.h5")) as held:
    ...     held.held
    True
    """
    return FileLock(path, shared=shared, timeout_s=timeout_s, if_unsafe=if_unsafe)


def _has_name(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False


# Strong references: a held lock stays held when its object is no longer referenced elsewhere.
_held: set[FileLock] = set()


def _forget_in_child() -> None:
    for one in _held:
        fd, one._fd = one._fd, None
        if fd is not None:
            os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_forget_in_child)

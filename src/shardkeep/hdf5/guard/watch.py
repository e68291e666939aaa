"""`guard`: a watch over all uses of h5py in a program, which stops those that would destroy a file.

The guard wraps ``h5py.File.__init__`` and ``close`` while it is active. Before a file is opened for writing
by its path, it searches for other handles (in this process, in ``/proc``, by the sidecar lock) and checks
whether HDF5 locks the file. While the file is open the guard holds its sidecar lock, so that guarded
processes detect each other on any host.

After a fork the child's copy of each writer is redirected to memory (`shardkeep.hdf5.locking.handles`), so
that the child cannot change the file, and in the child every use of the handle is a finding.
"""

from __future__ import annotations

import atexit
import contextlib
import multiprocessing.spawn
import os
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import h5py

from shardkeep.errors import LockError, LockTimeoutError, PlanError, ShardkeepError
from shardkeep.files.locks.lock import FileLock
from shardkeep.hdf5.guard.findings import Finding, FindingKind, OnFinding, held, is_held, report
from shardkeep.hdf5.h5py_private import check_h5py, class_with_id
from shardkeep.hdf5.locking.handles import descriptor_of, is_exempt, redirect_to_memory
from shardkeep.hdf5.locking.holders import Holder, openers_of
from shardkeep.hdf5.locking.mode import VARIABLE, locking_mode

__all__ = ["Guard", "guard"]

_WRITING = ("r+", "a", "w", "w-", "x")


class _Writer:
    """A file that is open for writing under the guard."""

    def __init__(self, path: str, file: h5py.File, lock: FileLock | None) -> None:
        self.path = path
        self.pid = os.getpid()
        self.lock = lock
        self.file_id = file.id
        self.name = h5py.h5f.get_name(file.id)
        self.fd = descriptor_of(file.id)
        status = os.stat(path)
        self.inode = status.st_dev, status.st_ino

    def is_open(self) -> bool:
        """Return whether the handle is still open; it may be closed without `h5py.File.close`."""
        return bool(self.file_id.valid)

    def release(self) -> None:
        """Release the sidecar lock."""
        lock, self.lock = self.lock, None
        if lock is not None:
            lock.release()


class Guard:
    """An active guard, yielded by `guard`.

    Parameters
    ----------
    on_finding : {"raise", "warn"} or None
        As in `guard`.

    Attributes
    ----------
    on_finding : {"raise", "warn"} or None
        As in `guard`.
    findings : list of Finding
        All findings of this process so far, oldest first.
    """

    def __init__(self, on_finding: OnFinding | None) -> None:
        self.on_finding = on_finding
        self.findings: list[Finding] = []
        self._writers: dict[int, _Writer] = {}
        self._inherited: list[_Writer] = []
        self._undo: list[tuple[Any, str, Any]] = []

    def __repr__(self) -> str:
        return f"<Guard on_finding={self.on_finding!r}, {len(self.findings)} findings>"

    def _found(self, finding: Finding) -> None:
        """Record a finding and report it."""
        self.findings.append(finding)
        report(finding, self.on_finding)

    def _start(self) -> None:
        """Wrap h5py."""
        check_h5py()
        self._wrap(h5py.File, "__init__", self._opening)
        self._wrap(h5py.File, "close", self._closing)
        self._wrap(multiprocessing.spawn, "get_preparation_data", self._spawning)

    def _stop(self) -> None:
        """Remove all wrappers, and release the locks."""
        while self._undo:
            place, name, original = self._undo.pop()
            setattr(place, name, original)
        for writer in self._writers.values():
            writer.release()
        self._writers.clear()

    def _wrap(self, place: Any, name: str, wrapper: Callable[..., Any]) -> None:
        original = vars(place)[name]
        self._undo.append((place, name, original))
        setattr(place, name, wrapper(original))

    def _opening(self, original: Any) -> Any:
        def __init__(
            file: Any, name: Any, mode: str = "r", driver: Any = None, *args: Any, **options: Any
        ) -> None:
            path = None if is_exempt() or driver not in (None, "sec2") else _path_of(name)
            lock = None
            if path is not None:
                self._refuse_inherited(path)
                if mode in _WRITING:
                    try:
                        lock = self._inspect(path, mode, options)
                    except LockError as error:
                        # Our own frames would hide the program's line.
                        raise error.with_traceback(None) from None
            try:
                original(file, name, mode, driver, *args, **options)
                if path is not None and mode in _WRITING:
                    writer = _Writer(path, file, lock)
                    self._writers[id(file)] = writer
                    weakref.finalize(file, self._gone, id(file)).atexit = False
            except BaseException as error:
                if lock is not None:
                    lock.release()
                if path is not None and is_held(error):
                    raise held(path, writing=mode in _WRITING) from error
                raise

        return __init__

    def _closing(self, original: Any) -> Any:
        def close(file: Any) -> None:
            original(file)
            self._gone(id(file))

        return close

    def _spawning(self, original: Any) -> Any:
        def get_preparation_data(name: str) -> dict[str, Any]:
            # The first data that a child of spawn or of a fork server reads.
            return {**original(name), "shardkeep guard": _InChild(self.on_finding)}

        return get_preparation_data

    def _gone(self, key: int) -> None:
        writer = self._writers.pop(key, None)
        if writer is not None:
            writer.release()

    def _inspect(self, path: str, mode: str, options: dict[str, Any]) -> FileLock | None:
        """Report findings about a file before it is opened for writing; return its sidecar lock."""
        truncates = mode == "w" and os.path.exists(path)
        for writer in list(self._writers.values()):
            if writer.is_open() and writer.inode == _inode(path):
                kind: FindingKind = "truncated while open" if truncates else "two writers here"
                self._found(Finding.of(kind, path, f"{path!r} is open for writing in this process already"))
                return None
        for other in openers_of(path):
            if truncates:
                self._found(_truncated(path, other))
            elif other.writes and other.pid != os.getpid():
                self._found_second_writer(path, other)
        lock = self._lock_sidecar(path)
        try:
            self._check_locking(path, options)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        return lock

    def _lock_sidecar(self, path: str) -> FileLock | None:
        try:
            return FileLock(path, timeout_s=0, if_unsafe="trust").acquire()
        except LockTimeoutError as error:
            holder = error.holder
            self._found_second_writer(
                path, Holder(**holder, lock="exclusive", writes=True) if holder else None
            )
        except (ShardkeepError, OSError):
            pass  # the folder is not writable, or has no locks: only the other checks apply
        return None

    def _found_second_writer(self, path: str, other: Holder | None) -> None:
        who = "another process" if other is None else str(other)
        self._found(Finding.of("second writer", path, f"{path!r} is being written by {who}", other))

    def _check_locking(self, path: str, options: dict[str, Any]) -> None:
        mode = locking_mode()
        if mode.effect == "off":
            self._found(
                Finding.of("locking off", path, f"{path!r} is written with {VARIABLE} switching locks off")
            )
        elif mode.effect == "asked" and str(options.get("locking")).lower() == "false":
            self._found(Finding.of("locking off", path, f"{path!r} is written with locking=False"))
        elif mode.stale:
            what = f"{path!r} is written while {VARIABLE}={mode.variable} was set too late to have an effect"
            self._found(Finding.of("locking off", path, what))

    def _after_fork(self) -> None:
        """Redirect the parent's writers to memory, in the child."""
        writers = [one for one in self._writers.values() if one.is_open()]
        self._writers = {}
        self.findings = []
        for one in writers:
            one.lock = None
            if one.fd is not None:
                with contextlib.suppress(OSError):
                    redirect_to_memory(one.fd)
        self._inherited += writers
        if writers:
            self._wrap(class_with_id(), "id", self._using)
            atexit.register(self._at_exit)

    def _using(self, original: Any) -> Any:
        def id_(item: Any) -> Any:
            oid = original.fget(item)
            writer = None if is_exempt() else self._inherited_of(oid)
            if writer is not None:
                self._found(_forked(writer, "is used"))
            return oid

        return property(id_)

    def _inherited_of(self, oid: Any) -> _Writer | None:
        try:
            if not self._inherited or not oid.valid:
                return None
            name = h5py.h5f.get_name(oid)
        except (AttributeError, ValueError, RuntimeError, OSError, TypeError):
            return None
        return next((one for one in self._inherited if one.name == name), None)

    def _refuse_inherited(self, path: str) -> None:
        for writer in self._inherited:
            if writer.inode == _inode(path):
                self._found(_forked(writer, "is opened again"))

    def _at_exit(self) -> None:
        for writer in self._inherited:
            if writer.is_open():
                finding = _forked(writer, "would be closed by the end")
                self.findings.append(finding)
                # Where nothing can be raised any more, Python prints it with this call's name.
                raise finding.error()


@contextlib.contextmanager
def guard(*, on_finding: OnFinding | None = None) -> Iterator[Guard]:
    """Watch every use of h5py in the body, and stop each use that would destroy a file.

    Parameters
    ----------
    on_finding : {"raise", "warn"}, optional
        Reaction to each finding. By default those that destroy data raise `LockError`, the others warn
        (`RuntimeWarning`).

    Yields
    ------
    Guard
        The active guard; its `findings` are complete after the body.

    Raises
    ------
    LockError
        Raised by the harmful call, before a byte is touched: a second writer, in this or in another
        process (which is named where it can be found); ``"w"`` over a file that is open anywhere; a writer
        opened before ``fork`` that the child uses, closes or leaves open.
    LockHeldError
        HDF5 could not get its lock: a `LockTimeoutError` that names the holder, and the `BlockingIOError`
        that h5py raises, so that programs which catch that and wait still work.
    PlanError
        `on_finding` is not one of its values.
    MissingExtraError
        This version of h5py cannot be guarded.

    Notes
    -----
    The guard watches files that h5py opens by their path. Libraries with another HDF5 (netCDF4, PyTables) are
    detected only from ``/proc``, in this user's processes on this host. Guarded processes detect each other
    by the sidecar ``path.lock`` too. Forked processes, and those that multiprocessing starts (spawn, fork
    server), are guarded as well. After the body h5py is as it was. ``python -m shardkeep.guard script.py``
    guards a whole program.

    Opening for writing takes a few milliseconds more, since all processes of this user are searched.

    Examples
    --------
    >>> import tempfile
    >>> from shardkeep.errors import LockError
    >>> path = os.path.join(tempfile.mkdtemp(), "a.h5")
    >>> with guard():
    ...     with h5py.File(path, "w") as first:
    ...         try:
    ...             h5py.File(path, "w")
    ...         except LockError as error:
    ...             print("open for writing in this process already" in str(error))
    True
    """
    if on_finding not in (None, "raise", "warn"):
        raise PlanError(f'on_finding must be "raise" or "warn", not {on_finding!r}')
    one = Guard(on_finding)
    one._start()
    _active.append(one)
    try:
        yield one
    finally:
        _active.remove(one)
        one._stop()


class _InChild:
    """An object that starts the guard in the process in which it is unpickled."""

    def __init__(self, on_finding: OnFinding | None) -> None:
        self._on_finding = on_finding

    def __reduce__(self) -> Any:
        return guard_child, (self._on_finding,)


def guard_child(on_finding: OnFinding | None) -> None:
    """Guard this process to its end; called first in a child of multiprocessing.

    Threads that outlive the main thread are guarded too: they end before the functions of `atexit` run.
    """
    _process_guard.enter_context(guard(on_finding=on_finding))
    atexit.register(_process_guard.close)


def _path_of(name: Any) -> str | None:
    if isinstance(name, (str, bytes, os.PathLike)):
        return os.fsdecode(name)
    return None  # an identifier, or a Python file


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _truncated(path: str, other: Holder) -> Finding:
    what = f"mode 'w' would empty {path!r}, which is open in {other}"
    return Finding.of("truncated while open", path, what, other)


def _forked(writer: _Writer, how: str) -> Finding:
    what = f"the writer of {writer.path!r}, opened by process {writer.pid}, {how} in a forked child"
    return Finding.of("forked writer", writer.path, what)


_active: list[Guard] = []
_process_guard = contextlib.ExitStack()


def _after_fork() -> None:
    for one in _active:
        one._after_fork()


os.register_at_fork(after_in_child=_after_fork)

"""Exclusive use of the files of one rank: its lock, process and threads, signal handlers and exit."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import uuid
import weakref
from collections.abc import Iterator
from typing import Any, Literal, TypeVar, get_args

from shardkeep.errors import (
    DurabilityError,
    ExistsError,
    LockError,
    LockTimeoutError,
    PlanError,
    ShardkeepError,
)
from shardkeep.files import leftovers
from shardkeep.files.kinds.urls import is_url, path_or_url
from shardkeep.files.locks.holder import holder_is_me
from shardkeep.files.locks.lock import FileLock
from shardkeep.files.user_warning import warn_user
from shardkeep.hdf5.read_errors import first_line
from shardkeep.hdf5.segments.described_data import DescribedData
from shardkeep.hdf5.segments.run_folder import list_segments, make_rank_folder, rank_folder, writer_path
from shardkeep.hdf5.segments.segment import Segment
from shardkeep.hdf5.segments.series_end import remove_end
from shardkeep.hdf5.storage.row_writer import RowWriter
from shardkeep.hdf5.worker.contents import Contents, Storage
from shardkeep.hdf5.worker.cut import complete_cuts
from shardkeep.hdf5.worker.remote_rank import RemoteRank, local_run
from shardkeep.hdf5.worker.rollback import remove_after
from shardkeep.world import REMEDY, World

__all__ = ["RankExists", "RankOwner"]

RankExists = Literal["resume", "fail", "replace"]

_Self = TypeVar("_Self", bound="RankOwner")


class RankOwner:
    """Base class of an object that owns one rank of a run folder, for one process.

    All changes happen within `_doing`, so one call is over before the next one begins: other threads
    wait, and a call in a signal handler is refused.
    """

    def __init__(
        self,
        run_dir: str,
        world: World,
        storage: Storage,
        *,
        durable: bool,
        timeout_s: float | None,
        exists: RankExists,
    ) -> None:
        if exists not in get_args(RankExists):
            raise PlanError(f'exists must be "resume", "fail" or "replace", not {exists!r}')
        self.run_dir = path_or_url(run_dir)
        self.rank, self._world_size = world.rank, world.size
        # Absolute: the program may change its folder between two commits.
        self._folder = rank_folder(local_run(run_dir), self.rank)
        self._remote = RemoteRank(self.run_dir, self.rank) if is_url(self.run_dir) else None
        self._contents = Contents(self._folder, self.rank, storage)
        run_path = os.path.dirname(self._folder) if self._remote is None else self.run_dir
        self._described = DescribedData(run_path, durable=durable)
        self._incarnation = uuid.uuid4().hex
        self._writers: dict[str, RowWriter] = {}
        self._durable = durable
        self._mutex = threading.RLock()
        self._busy: str | None = None
        self._close_later = False
        self._failure: str | None = None
        self._closed = False
        self._pid = os.getpid()
        make_rank_folder(self._folder, durable=durable)
        # The lock excludes a second process of the same rank. On a file system of unknown kind, where it may
        # exclude no process, a warning is better than no results: no other rank writes these files.
        self._lock = FileLock(writer_path(self._folder), timeout_s=timeout_s, if_unsafe="warn")
        try:
            self._lock.acquire()
        except LockTimeoutError as error:
            if world.source != "default" or (error.holder and holder_is_me(error.holder)):
                raise
            cause = "no launcher was found, so both processes are rank 0 of 1"
            full = LockTimeoutError(f"{error}; {cause}: {REMEDY}", path=error.path)
            full.holder = error.holder
            raise full from None
        try:
            if self._remote is not None:
                self._remote.claim()
                self._remote.pull()
            leftovers.remove_all(self._folder)
            complete_cuts(self._folder, durable=durable)
            remove_end(self._folder, durable=durable)
            if exists == "replace":
                remove_after(self._folder, -1, durable=durable)
            elif exists == "fail":
                self._refuse_commits()
            self._push()
            self._segment = Segment(self._folder, durable=durable)
            self._load()
        except BaseException:
            self._lock.release()
            raise
        _alive.add(self)

    def close(self) -> None:
        """Release the rank; uncommitted rows are dropped with a `RuntimeWarning`.

        In a signal handler that interrupts another call, it happens at the end of that call.

        Notes
        -----
        After a crash instead of a close the same rows are there: those that were committed.
        """
        with self._mutex:
            if self._busy is not None:
                self._close_later = True
                return
            lost = self._release_and_report()
        if lost is not None:
            warn_user(lost)

    def __enter__(self: _Self) -> _Self:
        self._check_owner()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            self.close()
        else:
            self._shut()

    def __del__(self) -> None:
        if hasattr(self, "_segment"):
            lost = self._release_and_report()
            if lost is not None:
                warn_user(lost)

    def __reduce__(self) -> Any:
        message = f"the worker file of rank {self.rank} belongs to process {self._pid} and cannot be pickled"
        raise LockError(f"{message}: make a WorkerFile in the other process", path=self._folder)

    def _refuse_commits(self) -> None:
        segments = list_segments(self._folder)
        if segments:
            message = f"rank {self.rank} has commits up to step {segments[-1].step} in {self.run_dir!r}"
            advice = 'continue after them with exists="resume", remove them with "replace"'
            raise ExistsError(f"{message}: {advice}, or choose another folder", path=self._folder)

    def _push(self) -> None:
        """Bring the folder of a rank in a store to the state of its mirror."""
        if self._remote is not None:
            self._remote.push()

    def _load(self) -> None:
        """Read the committed contents from disk."""
        self._contents = self._contents.reload()
        self._writers = self._contents.writers

    def _drop(self) -> None:
        """Remove everything that is not committed, and accept rows only within `_doing`."""
        self._writers = {}
        self._contents.drop()

    # -- one call at a time ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _doing(self, what: str, *, after_failure: bool = False) -> Iterator[None]:
        """Exclude other threads from the body, and signal handlers of this one."""
        with self._mutex:
            if self._busy is not None:
                message = f"the worker file of rank {self.rank} is in the middle of {self._busy}"
                advice = "set a flag in the signal handler, and act on it between two calls"
                raise LockError(f"{message}, {what} cannot interrupt it: {advice}", path=self._folder)
            self._check_owner()
            if self._failure is not None and not after_failure:
                message = f"rows of rank {self.rank} since the last commit were lost ({self._failure})"
                raise DurabilityError(f"{message}: call rollback(step=…) and append again", path=self._folder)
            self._busy = what
            try:
                yield
            finally:
                self._busy = None
                if self._close_later:
                    self.close()

    @contextlib.contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Drop the segment after an error or interrupt in the body, and refuse all calls until a rollback."""
        try:
            yield
        except BaseException as error:
            self._failure = first_line(error)
            self._segment.abort()
            self._drop()
            raise

    def _check_owner(self) -> None:
        if self._pid != os.getpid():
            message = (
                f"the worker file of rank {self.rank} belongs to process {self._pid}, not to its forked child"
            )
            raise LockError(f"{message}: make a WorkerFile of another rank there", path=self._folder)
        if self._closed:
            raise LockError(
                f"the worker file of rank {self.rank} is closed: make a new one", path=self._folder
            )

    def _release_and_report(self) -> str | None:
        """Release the rank; return a message about uncommitted rows, if there are any."""
        with self._mutex:
            lost = (
                self._contents.described_uncommitted()
                if self._pid == os.getpid() and not self._closed
                else []
            )
            self._shut()
        if not lost:
            return None
        what = f"rows of rank {self.rank} in {self.run_dir!r} that were never committed"
        return f"{what} are dropped: {', '.join(lost)}; call commit(step=…) before the end"

    def _shut(self) -> None:
        # A commit of another thread ends first.
        with self._mutex:
            if not self._closed:
                self._closed = True
                _alive.discard(self)
                self._segment.abort()
                if self._remote is not None and self._pid == os.getpid():
                    self._remote.forget()
                self._lock.release()
                self._drop()

    def _forget_in_child(self) -> None:
        self._mutex = threading.RLock()
        self._busy = None
        self._drop()


_alive: weakref.WeakSet[RankOwner] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_alive):
        one._forget_in_child()


@atexit.register
def _close_all() -> None:
    # HDF5 closes open files after Python has ended, and would crash when it calls their Python file.
    messages = []
    for one in list(_alive):
        with contextlib.suppress(ShardkeepError, OSError):
            messages.append(one._release_and_report())
    if not hasattr(sys, "last_value"):  # a program that ended by an error has printed it
        for message in filter(None, messages):
            warn_user(message)


os.register_at_fork(after_in_child=_after_fork)

"""`WorkerFile`: one rank's rows, in segments that appear whole with each commit."""

from __future__ import annotations

import atexit
import contextlib
import json
import operator
import os
import socket
import threading
import time
import uuid
import warnings
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep.errors import CorruptDataError, DurabilityError, LockError, PlanError, ShardkeepError
from shardkeep.files import leftovers
from shardkeep.files.lock import FileLock
from shardkeep.files.pending import durability_error
from shardkeep.hdf5.commit_record import CommitRecord
from shardkeep.hdf5.rollback import remove_after
from shardkeep.hdf5.rows import as_first_rows, as_more_rows, check_name
from shardkeep.hdf5.run_folder import list_segments, rank_folder, segment_path, writer_path
from shardkeep.hdf5.segment import Column, Segment
from shardkeep.hdf5.source import open_source

if TYPE_CHECKING:
    from shardkeep.world import World

__all__ = ["WorkerFile"]


class WorkerFile:
    """What one rank of a run writes: rows of any number of datasets, kept commit by commit.

    Parameters
    ----------
    run_dir : str or os.PathLike
        One folder for all ranks of a run; made if missing.
    world : World, optional
        Whose `rank` and `size` count; ``World.detect()`` without it.
    durable : bool
        Whether a commit also survives a power cut (``fsync``), or only the death of processes.
    timeout_s : float or None
        How long to wait for an earlier process of this rank to end; 0 tries once.

    Raises
    ------
    LockTimeoutError
        A process that lives is writing this rank; the message says which.
    CorruptDataError
        A segment of this rank is missing or damaged.
    DurabilityError
        The folder cannot be made or written.

    Notes
    -----
    **Commits.** ``commit`` seals everything since the last one as an ordinary HDF5 file, synced,
    then renamed: that rename is the commit. Whatever is killed at whatever instant, every
    committed row is there and no other; opening the file again needs no repair. Rows that were
    not committed are gone after a crash, after an exception in the ``with`` body, and after
    ``close``, which warns about them.

    **Memory** is one chunk (512 KiB) per dataset; whole chunks go to disk as they fill.

    **After a failed or interrupted write** (`DurabilityError`: full disk, I/O error) the rows since
    the last commit are lost and the object refuses to go on until ``rollback`` says from which step.

    **Processes.** One writer per rank. After ``fork`` the child cannot use the object and its end
    does not touch the parent's files; it cannot be pickled. Threads may share it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from shardkeep.world import World
    >>> run = tempfile.mkdtemp()
    >>> with WorkerFile(run, World(rank=0, size=1)) as out:
    ...     out.append("loss", [0.9, 0.7])
    ...     out.append("embeddings", np.zeros((2, 8), "float32"))
    ...     out.commit(step=100)
    >>> with WorkerFile(run, World(rank=0, size=1)) as out:
    ...     out.committed_step, out.committed_rows
    (100, {'loss': 2, 'embeddings': 2})
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        world: World | None = None,
        *,
        durable: bool = True,
        timeout_s: float | None = 0.0,
    ) -> None:
        if world is None:
            from shardkeep.world import World

            world = World.detect()
        self.run_dir = os.fspath(run_dir)
        self.rank = world.rank
        self._world_size = world.size
        self._durable = durable
        self._incarnation = uuid.uuid4().hex
        self._folder = rank_folder(self.run_dir, self.rank)
        self._columns: dict[str, Column] = {}
        self._mutex = threading.RLock()
        self._failure: str | None = None
        self._step: int | None = None
        self._sequence = 0
        self._receipts: dict[str, int] = {}
        self._closed = False
        self._pid = os.getpid()
        _make_folders(self._folder, durable=durable)
        # A rank has files of its own: the lock guards against a second process with the same rank, and where
        # it excludes nobody (a cluster's file system of unknown kind) a warning is better than no results.
        self._lock = FileLock(writer_path(self._folder), timeout_s=timeout_s, if_unsafe="warn").acquire()
        try:
            leftovers.remove_all(self._folder)
            self._segment = Segment(self._folder, durable=durable)
            self._load()
        except BaseException:
            self._lock.release()
            raise
        _alive.add(self)

    # -- writing -----------------------------------------------------------------------------------

    def append(self, name: str, rows: Any) -> None:
        """Add rows to a dataset; the first ones create it.

        Parameters
        ----------
        name : str
            Parts between "/" are groups.
        rows : array_like, shape (n, ...)
            The leading axis counts rows, also for one row: ``append("loss", [0.5])``. The first
            rows fix dtype and row shape. Later ones must have that shape and a dtype that casts
            to it without loss (``numpy.can_cast(…, "safe")``); plain Python numbers need only
            fit. Text is str, bytes are fixed-size (``S``).

        Raises
        ------
        SchemaError
            Rows or name do not fit; nothing was added. Shows both sides.
        DurabilityError
            A chunk could not be written.
        LockError
            In a forked child.
        """
        with self._mutex:
            column = self._columns.get(name)
            if column is not None and type(rows) is np.ndarray and rows.dtype is column.accepted:
                fill = column.fill
                shape = rows.shape
                if shape == column.one_row:
                    if fill < column.last_row:
                        column.buffer[fill] = rows
                        column.fill = fill + 1
                        return
                elif fill + shape[0] <= column.last_row and shape[1:] == column.row_shape:
                    column.buffer[fill : fill + shape[0]] = rows
                    column.fill = fill + shape[0]
                    return
            self._append(name, column, rows)

    def commit(self, *, step: int, receipt: dict[str, Any] | None = None) -> None:
        """Make every row so far survive anything, as the state after `step`.

        Parameters
        ----------
        step : int
            At least 0 and larger than `committed_step`.
        receipt : dict, optional
            ``loader.receipt()``: what the rows were made from. Kept with the commit and forgotten
            with it by ``rollback``.

        Raises
        ------
        PlanError
            The step does not come after the last one (after a restart: ``rollback`` first), or
            the receipt is not JSON. Nothing changed.
        DurabilityError
            The segment could not be written, synced or named: the commit did not happen.
        """
        with self._mutex:
            self._check_usable()
            step = self._check_step(step)
            receipt = _check_receipt(receipt)
            sequence = self._sequence
            receipts = dict(self._receipts)
            if receipt is not None:
                receipts[str(receipt.get("id", self._incarnation))] = sequence
            record = CommitRecord(
                rank=self.rank,
                world_size=self._world_size,
                sequence=sequence,
                step=step,
                incarnation=self._incarnation,
                host=socket.gethostname(),
                pid=self._pid,
                created=round(time.time(), 3),
                datasets={},
                receipt=receipt,
                receipts=receipts,
            )
            try:
                self._segment.seal(segment_path(self._folder, sequence, step), self._columns.values(), record)
                # An interrupt here leaves a segment that these numbers lack: its rows would be sealed again.
                for column in self._columns.values():
                    column.start_segment(column.first_row + column.rows)
                self._sequence, self._step, self._receipts = sequence + 1, step, receipts
            except BaseException as error:
                self._fail(error)
                raise

    def rollback(self, *, step: int) -> None:
        """Forget what this rank committed after `step`, and what was not committed at all.

        -1 forgets everything. Also makes the object usable again after a `DurabilityError` or an
        interrupt. A run that starts again from a checkpoint needs `shardkeep.hdf5.rollback`, once,
        before its workers open their files: this method does not reach ranks that a smaller
        world no longer has, and their later rows would be merged too.

        Notes
        -----
        Newest segments go first, so after a crash in the middle a first part of the commits is
        there, and the same call finishes the work.
        """
        with self._mutex:
            self._check_owner()
            self._segment.abort()
            try:
                remove_after(self._folder, step, durable=self._durable)
                self._load()
            except BaseException as error:
                self._fail(error)
                raise
            self._failure = None

    # -- what is there -------------------------------------------------------------------------------

    @property
    def committed_step(self) -> int | None:
        """The step of the newest commit; None before the first."""
        return self._step

    @property
    def committed_rows(self) -> dict[str, int]:
        """How many rows of each dataset are committed."""
        return {name: column.first_row for name, column in self._columns.items()}

    @property
    def uncommitted_rows(self) -> dict[str, int]:
        """How many rows of each dataset would be lost by a crash now."""
        return {name: column.rows for name, column in self._columns.items() if column.rows}

    # -- the end -------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let the rank go; rows that were not committed are dropped with a `RuntimeWarning`."""
        with self._mutex:
            lost = {} if self._pid != os.getpid() else self.uncommitted_rows
            shut = self._shut()
        if shut and lost:
            what = ", ".join(f"{rows} of {name!r}" for name, rows in lost.items())
            message = f"rows of rank {self.rank} that were never committed are dropped: {what}"
            warnings.warn(f"{message}; call commit(step=…) before the end", RuntimeWarning, stacklevel=2)

    def __enter__(self) -> WorkerFile:
        self._check_owner()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
        else:
            self._shut()

    def __del__(self) -> None:
        if hasattr(self, "_segment"):
            self._shut()

    def __reduce__(self) -> Any:
        message = f"the worker file of rank {self.rank} belongs to process {self._pid} and cannot be pickled"
        raise LockError(f"{message}: make a WorkerFile in the other process", path=self._folder)

    def __repr__(self) -> str:
        return f"<WorkerFile {self._folder!r}, committed step {self._step}>"

    # -- inside --------------------------------------------------------------------------------------

    def _append(self, name: str, column: Column | None, rows: Any) -> None:
        self._check_usable()
        if column is None:
            array = as_first_rows(name, rows)
            column = Column(check_name(name, self._columns), array.dtype, array.shape[1:], 0)
            self._columns[name] = column
        else:
            array = as_more_rows(name, rows, column.dtype, column.row_shape)
        if type(rows) is np.ndarray and array.dtype is rows.dtype:
            column.accepted = rows.dtype
        try:
            self._spill(column, array)
        except BaseException as error:
            self._fail(error)
            raise

    def _spill(self, column: Column, rows: np.ndarray[Any, Any]) -> None:
        size = column.chunk_rows
        start = 0
        while start < len(rows):
            if column.fill == 0 and len(rows) - start >= size:
                self._segment.write_chunk(column, rows[start : start + size])
                start += size
                continue
            count = min(size - column.fill, len(rows) - start)
            column.buffer[column.fill : column.fill + count] = rows[start : start + count]
            column.fill += count
            start += count
            if column.fill == size:
                column.fill = 0
                self._segment.write_chunk(column, column.buffer)

    def _load(self) -> None:
        segments = list_segments(self._folder)
        self._columns = {}
        self._step = None
        self._sequence = len(segments)
        self._receipts = {}
        if not segments:
            return
        newest = segments[-1]
        with open_source(newest.path) as source:
            record = source.record
            if record is None or (record.rank, record.sequence, record.step) != (
                self.rank,
                newest.sequence,
                newest.step,
            ):
                message = f"{newest.path!r} is not the segment that its name says: restore it, or remove it"
                raise CorruptDataError(message, path=newest.path)
            for name, one in record.datasets.items():
                shape, dtype = source.schema(name)
                self._columns[name] = Column(name, dtype, shape[1:], one.first_row + one.rows)
        self._step = newest.step
        self._receipts = dict(record.receipts)

    def _check_step(self, step: int) -> int:
        try:
            number = operator.index(step)
        except TypeError:
            raise PlanError(f"step={step!r} is not a whole number: count the steps of the run") from None
        if number < 0:
            raise PlanError(f"step={number} is negative: steps start at 0")
        if self._step is not None and number <= self._step:
            message = (
                f"rank {self.rank} has committed step {self._step}, step {number} does not come after it"
            )
            raise PlanError(f"{message}: call rollback(step=…) with the step of the checkpoint first")
        return number

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

    def _check_usable(self) -> None:
        self._check_owner()
        if self._failure is not None:
            message = f"rows of rank {self.rank} since step {self._step} were lost ({self._failure})"
            raise DurabilityError(f"{message}: call rollback(step=…) and append again", path=self._folder)

    def _fail(self, error: BaseException) -> None:
        self._failure = (str(error).splitlines() or [type(error).__name__])[0]
        self._segment.abort()
        for column in self._columns.values():
            column.start_segment(column.first_row)
            column.accepted = None

    def _shut(self) -> bool:
        # A commit of another thread ends first.
        with self._mutex:
            if self._closed:
                return False
            self._closed = True
            _alive.discard(self)
            self._segment.abort()
            self._lock.release()
            self._columns = {}
            return True

    def _forget_in_child(self) -> None:
        self._mutex = threading.RLock()
        self._columns = {}


def _make_folders(folder: str, *, durable: bool) -> None:
    try:
        made = []
        current = os.path.abspath(folder)
        while not os.path.isdir(current):
            made.append(current)
            current = os.path.dirname(current)
        os.makedirs(folder, exist_ok=True)
        if durable:
            for one in made:
                fd = os.open(os.path.dirname(one), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    os.fsync(fd)
                finally:
                    os.close(fd)
    except OSError as error:
        raise durability_error("make the folder", folder, error) from error


def _check_receipt(receipt: dict[str, Any] | None) -> dict[str, Any] | None:
    if receipt is None:
        return None
    try:
        if not isinstance(receipt, dict):
            raise TypeError(f"a {type(receipt).__name__} is no dict")
        copy: dict[str, Any] = json.loads(json.dumps(receipt, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise PlanError(f"receipt= is not what loader.receipt() gives ({error}): pass that") from error
    return copy


_alive: weakref.WeakSet[WorkerFile] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_alive):
        one._forget_in_child()


@atexit.register
def _close_all() -> None:
    # HDF5 closes what is open after Python is gone, and would call into it: a crash.
    for one in list(_alive):
        with contextlib.suppress(ShardkeepError, OSError):
            one._shut()


os.register_at_fork(after_in_child=_after_fork)

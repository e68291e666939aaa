"""`WorkerFile`: one rank's rows, in segments that appear whole with each commit."""

from __future__ import annotations

import operator
import os
import socket
import struct
import time
import uuid
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from shardkeep.errors import PlanError, SchemaError
from shardkeep.hdf5.segments.commit_record import CommitRecord, check_receipt
from shardkeep.hdf5.segments.rollback import check_checkpoint, remove_after
from shardkeep.hdf5.segments.run_folder import rank_folder, segment_path
from shardkeep.hdf5.storage.compression import Compression
from shardkeep.hdf5.storage.row_writer import RowWriter
from shardkeep.hdf5.storage.rows import as_more_rows
from shardkeep.hdf5.worker.contents import Contents, Storage
from shardkeep.hdf5.worker.rank_owner import RankOwner

if TYPE_CHECKING:
    from shardkeep.world import World

__all__ = ["WorkerFile"]

_ndarray = np.ndarray


class WorkerFile(RankOwner):
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
    compression : {"gzip", "lzf", "zstd", "blosc2"}, optional
        Of every dataset that `create` does not say otherwise of. zstd and blosc2 need the package
        hdf5plugin, also to be read. HDF5 does not compress values of variable length (text).
    compression_level : int, optional
        gzip 0 to 9 (4 without it), zstd 1 to 22 (3), blosc2 0 to 9 (5); lzf has none.
    shuffle : bool, optional
        Whether bytes of equal rank are stored together, which helps with numbers; without it, for
        numbers of more than one byte.

    Raises
    ------
    LockTimeoutError
        A process that lives is writing this rank; the message says which.
    CorruptDataError
        A segment of this rank is missing or damaged.
    DurabilityError
        The folder cannot be made or written.
    PlanError, MissingExtraError
        There is no such compression or level; hdf5plugin is not installed.

    Notes
    -----
    **Commits.** ``commit`` seals everything since the last one as an ordinary HDF5 file, synced,
    then renamed: that rename is the commit. Whatever is killed at whatever instant, every
    committed row is there and no other; opening the file again needs no repair. Rows that were
    not committed are gone after a crash, after an exception in the ``with`` body, and after
    ``close``, which warns about them. Values that were put and attributes go with the rows:
    committed with them and rolled back with them.

    **Memory** is one chunk (512 KiB, or one row if that is larger) and up to 1,024 single rows per
    dataset; whole chunks go to disk as they fill.

    **After a failed or interrupted write** (`DurabilityError`: full disk, I/O error) the rows since
    the last commit are lost and the object refuses to go on until ``rollback`` says from which step.

    **Processes.** One writer per rank. After ``fork`` the child cannot use the object and its end
    does not touch the parent's files; it cannot be pickled. Threads may share it.

    **Signal handlers** that run in the middle of a call of this object may call ``close``, which
    then happens when that call is over; any other call is refused with a `LockError`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from shardkeep.world import World
    >>> run = tempfile.mkdtemp()
    >>> with WorkerFile(run, World(rank=0, size=1), compression="gzip") as out:
    ...     out.append("loss", [0.9, 0.7])
    ...     out.append("embeddings", np.zeros((2, 8), "float32"))
    ...     out.put("labels", ["cat", "dog"])
    ...     out.set_attribute("unit", "nats", on="loss")
    ...     out.commit(step=100)
    >>> with WorkerFile(run, World(rank=0, size=1)) as out:
    ...     out.committed_step, out.committed_rows, out.attributes("loss")
    (100, {'loss': 2, 'embeddings': 2}, {'unit': 'nats'})
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        world: World | None = None,
        *,
        durable: bool = True,
        timeout_s: float | None = 0.0,
        compression: Compression | None = None,
        compression_level: int | None = None,
        shuffle: bool | None = None,
    ) -> None:
        if world is None:
            from shardkeep.world import World

            world = World.detect()
        storage = Storage(compression, compression_level, shuffle)
        storage.check()
        self._world_size = world.size
        self._incarnation = uuid.uuid4().hex
        folder = rank_folder(os.path.abspath(os.fspath(run_dir)), world.rank)
        self._contents = Contents(folder, world.rank, storage)
        self._writers: dict[str, RowWriter] = {}
        super().__init__(os.fspath(run_dir), world.rank, durable=durable, timeout_s=timeout_s)

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
            to it without loss (``numpy.can_cast(…, "safe")``, and 64-bit integers into floats
            only if none is rounded); plain Python numbers need only fit, and integers in a list
            with floats must not be rounded either. Text is str, bytes are
            fixed-size (``S``). An empty list, which has no type, creates nothing.

        Raises
        ------
        SchemaError
            Rows or name do not fit; nothing was added. Shows both sides.
        DurabilityError
            A chunk could not be written.
        LockError
            In a forked child, or from a signal handler in the middle of another call.
        """
        writer = self._writers.get(name)
        if writer is not None:
            # No lock: the one step that counts is an append to a list, and whoever empties that
            # list takes away only what it has seen. So neither a thread nor a signal handler that
            # comes in between loses or doubles a row.
            if type(rows) is _ndarray:
                if rows.dtype is writer.accepted and rows.shape == writer.one_row:
                    parts = writer.parts
                    parts.append(rows.tobytes())
                    if len(parts) >= writer.most_parts:
                        self._settle(writer)
                    return
            elif type(rows) is list and len(rows) == 1 and type(rows[0]) is writer.python_type:
                try:
                    writer.parts.append(writer.pack(rows[0]))  # type: ignore[misc]
                except (struct.error, OverflowError):
                    pass
                else:
                    if len(writer.parts) >= writer.most_parts:
                        self._settle(writer)
                    return
        with self._doing("append"):
            self._append(name, rows)

    def create(
        self,
        name: str,
        dtype: Any,
        row_shape: tuple[int, ...] = (),
        *,
        compression: Compression | Literal["inherit"] | None = "inherit",
        compression_level: int | None = None,
        shuffle: bool | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        """Declare a dataset before its first rows: its type, and how it is stored.

        The same declaration again, as after a restart, changes nothing. It outlives `rollback`.

        Parameters
        ----------
        name : str
            Parts between "/" are groups.
        dtype : dtype or what numpy makes one of
            ``str`` is text; ``h5py.vlen_dtype("i4")`` is rows of numbers of any length, of which
            ``append`` takes a sequence of sequences.
        row_shape : tuple of int
            Shape of one row.
        compression : {"gzip", "lzf", "zstd", "blosc2", "inherit"} or None
            "inherit" is what the `WorkerFile` was made with; None is none.
        compression_level, shuffle
            As of the `WorkerFile`.
        chunk_rows : int, optional
            Rows of one chunk; without it what makes 512 KiB.

        Raises
        ------
        SchemaError
            The dataset is there with another dtype or row shape; shows both.
        PlanError
            There is no such compression or level, or rows were stored in another way since the
            last commit.
        MissingExtraError
            zstd and blosc2 need the package hdf5plugin.
        """
        storage = Storage(None, compression_level, shuffle, chunk_rows)
        if compression != "inherit":
            storage = Storage(compression, compression_level, shuffle, chunk_rows)
        elif compression_level is None and shuffle is None:
            default = self._contents.default
            storage = Storage(default.compression, default.level, default.shuffle, chunk_rows)
        storage.check()
        try:
            shape = tuple(operator.index(length) for length in row_shape)
        except TypeError:
            raise SchemaError(f"row_shape={row_shape!r} is no shape: give a tuple of whole numbers") from None
        if any(length < 0 for length in shape):
            raise SchemaError(f"row_shape={row_shape!r} has a negative length: give what one row has")
        with self._doing("create"):
            self._contents.declare(name, dtype, shape, storage, forced=compression != "inherit")

    def put(self, name: str, value: Any) -> None:
        """Write a scalar or an array once, without a row axis, with the next commit.

        Parameters
        ----------
        name : str
            Parts between "/" are groups.
        value : array_like or str
            Kept as it is now.

        Raises
        ------
        SchemaError
            Another value was put under that name (the same one again, as after a restart, changes
            nothing), it is a dataset with rows, or HDF5 has no such type.
        LockError
            In a forked child, or from a signal handler in the middle of another call.
        """
        with self._doing("put"):
            self._contents.put(name, value)

    def set_attribute(self, name: str, value: Any, *, on: str = "/") -> None:
        """Set an attribute, from the next commit on.

        Parameters
        ----------
        name : str
        value : array_like, str or h5py.Empty
            Of any type that HDF5 keeps in an attribute.
        on : str
            The dataset, value or group that has it; "/" is the whole file. What is neither a
            dataset nor a value when it is committed becomes a group. A value takes
            attributes only until it is committed.

        Raises
        ------
        SchemaError
            Name or type are none that HDF5 keeps; the value `on` is committed already.
        LockError
            In a forked child, or from a signal handler in the middle of another call.
        """
        with self._doing("set_attribute"):
            self._contents.set_attribute(name, value, on)

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
        LockError
            In a forked child, or from a signal handler in the middle of another call.
        """
        with self._doing("commit"):
            contents = self._contents
            step = self._check_step(step)
            receipt = check_receipt(receipt)
            receipts = dict(contents.receipts)
            if receipt is not None:
                receipts[str(receipt.get("id", self._incarnation))] = contents.sequence
            record = CommitRecord(
                rank=self.rank,
                world_size=self._world_size,
                sequence=contents.sequence,
                step=step,
                incarnation=self._incarnation,
                host=socket.gethostname(),
                pid=self._pid,
                created=round(time.time(), 3),
                datasets={},
                receipt=receipt,
                receipts=receipts,
                previous=contents.newest_crc32c,
            )
            with self._all_or_nothing():
                with self._segment.writing():
                    record = contents.write(self._segment.group, record)
                self._segment.seal(segment_path(self._folder, record.sequence, step))
                # An interrupt here leaves a segment that these numbers lack: its rows would be sealed again.
                contents.committed(record)

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
        step = check_checkpoint(step)
        with self._doing("rollback", after_failure=True):
            self._segment.abort()
            with self._all_or_nothing():
                remove_after(self._folder, step, durable=self._durable)
                self._load()
            self._failure = None

    # -- what is there -------------------------------------------------------------------------------

    @property
    def committed_step(self) -> int | None:
        """The step of the newest commit; None before the first."""
        return self._contents.step

    @property
    def committed_rows(self) -> dict[str, int]:
        """How many rows of each dataset are committed."""
        return dict(self._contents.first_row)

    @property
    def uncommitted_rows(self) -> dict[str, int]:
        """How many rows of each dataset would be lost by a crash now."""
        return self._contents.uncommitted()

    def attributes(self, on: str = "/") -> dict[str, Any]:
        """Return the attributes of a dataset, value or group, committed or not, as h5py gives them."""
        with self._doing("attributes"):
            return self._contents.attributes_of(on)

    def __repr__(self) -> str:
        return f"<WorkerFile {self._folder!r}, committed step {self._contents.step}>"

    # -- inside --------------------------------------------------------------------------------------

    def _append(self, name: str, rows: Any) -> None:
        writer = self._writers.get(name)
        if writer is None:
            if isinstance(rows, (list, tuple)) and not rows:
                return  # of no type: another rank's rows say what it is
            writer, array = self._contents.first_rows(name, rows)
        elif (
            type(rows) is _ndarray
            and rows.dtype is writer.accepted
            and rows.ndim
            and rows.shape[1:] == writer.row_shape
        ):
            array = rows
        else:
            array = as_more_rows(name, rows, writer.dtype, writer.row_shape)
        if array is rows and not array.dtype.hasobject:
            writer.accepted = array.dtype
        with self._all_or_nothing(), self._segment.writing():
            writer.add(array, self._segment.group)

    def _settle(self, writer: RowWriter) -> None:
        with self._mutex:
            # In a signal handler: the call that it interrupted, or the next one, will do it.
            if self._busy is None:
                with self._doing("append"), self._all_or_nothing(), self._segment.writing():
                    # `create` of another thread may have handed the rows to a new writer meanwhile.
                    self._writers.get(writer.name, writer).settle(self._segment.group)

    def _load(self) -> None:
        self._contents = self._contents.reload()
        self._writers = self._contents.writers

    def _drop(self) -> None:
        self._writers = {}
        self._contents.drop()

    def _uncommitted(self) -> list[str]:
        contents = self._contents
        lost = [f"{rows} of {name!r}" for name, rows in contents.uncommitted().items()]
        return [*lost, *(f"value {name!r}" for name in contents.values)]

    def _check_step(self, step: int) -> int:
        try:
            number = operator.index(step)
        except TypeError:
            raise PlanError(f"step={step!r} is not a whole number: count the steps of the run") from None
        if number < 0:
            raise PlanError(f"step={number} is negative: steps start at 0")
        last = self._contents.step
        if last is not None and number <= last:
            message = f"rank {self.rank} has committed step {last}, step {number} does not come after it"
            raise PlanError(f"{message}: call rollback(step=…) with the step of the checkpoint first")
        return number

"""`WorkerFile`: the rows of one rank, in segments that appear complete with each commit.

The way of a row from `append` to the disk, in the order of the writes:

1. `WorkerFile.append` converts the row to the dtype of its dataset and puts its bytes into the list of that
   dataset's `RowWriter` (`shardkeep.hdf5.storage.row_writer`), without a lock.
2. `RowWriter.settle` and `RowWriter.add` collect rows in the buffer of one chunk. A full chunk is compressed
   and written into the `Segment` (`shardkeep.hdf5.segments.segment`), an HDF5 file under a temporary name.
3. `CommitSeries.commit` writes the last chunks, values, attributes and the record of the commit with the
   hashes of all rows (`Contents.write`), and closes the file.
4. `Segment.seal` syncs the file, renames it to the number and step of the commit, and syncs the folder.

Invariants: the rename is the commit, and no byte of a segment is written after it. A crash before it leaves
a temporary file, which the next opening removes; a crash after it leaves the commit. An error or interrupt
between 2 and 4 drops the segment and all rows since the last commit, never a part of them.
"""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np

from shardkeep.files.kinds.urls import path_or_url
from shardkeep.hdf5.storage.compression import Compression
from shardkeep.hdf5.storage.row_writer import RowWriter
from shardkeep.hdf5.storage.rows import as_more_rows
from shardkeep.hdf5.worker.commit_series import CommitSeries
from shardkeep.hdf5.worker.contents import Storage
from shardkeep.hdf5.worker.rank_owner import RankExists
from shardkeep.world import World, checked_world

__all__ = ["WorkerFile"]

_ndarray = np.ndarray


class WorkerFile(CommitSeries):
    """Rows of any number of datasets that one rank of a run writes, kept commit by commit.

    Parameters
    ----------
    run_dir : str or os.PathLike
        One folder for all ranks of a run; created if it is missing.
    world : World, optional
        Its `rank` and `size` are used; ``World.detect()`` without it.
    exists : {"resume", "fail", "replace"}
        Reaction to commits of this rank: continue after them, raise, or remove them (others stay).
    durable : bool
        Whether a commit also survives a power cut (``fsync``), or only the death of processes.
    timeout_s : float or None
        How long to wait for an earlier process of this rank to end; 0 tries once.
    compression : {"gzip", "lzf", "zstd", "blosc2"}, optional
        Compression of every dataset that is not declared with another one. zstd and blosc2 need the
        package hdf5plugin, also to be read. HDF5 does not compress values of variable length (text).
    compression_level : int, optional
        gzip 0 to 9 (4 without it), zstd 1 to 22 (3), blosc2 0 to 9 (5); lzf has none.
    shuffle : bool, optional
        Whether bytes of equal significance are stored together, which helps with numbers; the
        default is True for numbers of more than one byte.

    Raises
    ------
    LockTimeoutError
        Another process is writing this rank; the message names it.
    ExistsError
        The rank has commits, and `exists` is "fail".
    CorruptDataError
        A segment of this rank is missing or damaged.
    DurabilityError
        The folder cannot be created or written.
    PlanError, MissingExtraError
        An option is not valid; hdf5plugin is not installed.

    Notes
    -----
    **Commits.** ``commit`` seals all rows since the last one as an ordinary HDF5 file, which is synced
    and renamed: that rename is the commit.

    **After a crash**, at whatever instant a process is killed, every committed row is there and no
    other; opening the file again needs no repair. Rows that were not committed are lost after a crash,
    after an exception in the ``with`` body, and after ``close``, which warns about them. Values that
    were put and attributes are committed and rolled back with the rows.

    **Memory** is one chunk (512 KiB, or one row if that is larger) and up to 1,024 single rows per
    dataset; full chunks are written at once.

    **After a failed or interrupted write** (`DurabilityError`: full disk, I/O error) the rows since
    the last commit are lost, and every call is refused until ``rollback`` names the step from which
    the program continues.

    **Processes.** One writer per rank. A forked child cannot use the object, and its end does not
    touch the parent's files; it cannot be pickled. Threads may share it.

    **Signal handlers** that interrupt a call of this object may call ``close``, which then happens at
    the end of that call; any other call is refused with a `LockError`.

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
        exists: RankExists = "resume",
        durable: bool = True,
        timeout_s: float | None = 0.0,
        compression: Compression | None = None,
        compression_level: int | None = None,
        shuffle: bool | None = None,
    ) -> None:
        world = checked_world(world)
        storage = Storage(compression, compression_level, shuffle)
        storage.check()
        super().__init__(
            path_or_url(run_dir), world, storage, durable=durable, timeout_s=timeout_s, exists=exists
        )

    # -- writing -----------------------------------------------------------------------------------

    def append(self, name: str, rows: Any) -> None:
        """Add rows to a dataset; the first ones create it.

        Parameters
        ----------
        name : str
            The dataset; parts between "/" are groups.
        rows : array_like, shape (n, ...)
            The leading axis counts rows; a single number or str is one row of shape (). The first rows
            determine dtype and row shape. Later ones must have that shape and a dtype that casts to it
            without loss (``numpy.can_cast(…, "safe")``, and 64-bit integers into floats only if none is
            rounded); plain Python numbers need only fit, and integers in a list with floats must not be
            rounded either. Text is str, bytes are fixed-size (``S``). An empty list creates nothing. A
            `Ragged` makes rows of variable length, and so does a column of byte strings of a `Loader`
            (uint8). Tensors are converted as `numpy.asarray` does.

        Raises
        ------
        SchemaError
            Rows or name do not fit; nothing was added. The message has both types.
        DurabilityError
            A chunk could not be written: rows since the last commit are lost.
        LockError
            The call was made in a forked child, or in a signal handler that interrupts another call.
        """
        writer = self._writers.get(name)
        if writer is not None:
            # No lock: the only effect is one append to a list, which is atomic, and the code that
            # empties the list removes only the rows that it has read. So neither a thread nor a
            # signal handler in between loses or doubles a row.
            if type(rows) is _ndarray:
                if rows.dtype is writer.accepted and rows.shape == writer.one_row:
                    parts = writer.parts
                    parts.append(rows.tobytes())
                    if len(parts) >= writer.most_parts:
                        self._settle(writer)
                    return
            else:
                value = rows[0] if type(rows) is list and len(rows) == 1 else rows
                if type(value) is writer.python_type:
                    try:
                        writer.parts.append(writer.pack(value))  # type: ignore[misc]
                    except (struct.error, OverflowError):
                        pass
                    else:
                        if len(writer.parts) >= writer.most_parts:
                            self._settle(writer)
                        return
        with self._doing("append"):
            self._append(name, rows)

    def declare(
        self,
        name: str | Iterable[str],
        dtype: Any,
        row_shape: tuple[int, ...] = (),
        *,
        chunk_rows: int | None = None,
        compression: Compression | Literal["inherit"] | None = "inherit",
        compression_level: int | None = None,
        shuffle: bool | None = None,
    ) -> None:
        """Declare a dataset, or several, before the first rows: the type, and how it is stored.

        The same declaration again, as after a restart, changes nothing. It outlives `rollback`.

        Parameters
        ----------
        name : str or iterable of str
            The dataset; parts between "/" are groups. Several are declared alike.
        dtype : dtype or what NumPy makes one of
            The type of one value; ``str`` is text; ``h5py.vlen_dtype("i4")`` is rows of numbers of any
            length, of which ``append`` takes a sequence of sequences.
        row_shape : tuple of int
            The shape of one row, without the leading axis that counts rows.
        chunk_rows : int, optional
            The rows of one chunk; without it as many as make 512 KiB.
        compression : {"gzip", "lzf", "zstd", "blosc2", "inherit"} or None
            "inherit" is the compression of the `WorkerFile`; None is none.
        compression_level, shuffle
            As of the `WorkerFile`.

        Raises
        ------
        SchemaError
            The dataset exists with another dtype or row shape; the message has both.
        PlanError
            Compression or level are not valid, or rows since the last commit were stored otherwise.
        MissingExtraError
            zstd and blosc2 need the package hdf5plugin.
        LockError
            As of `append`.
        """
        if compression == "inherit":
            storage = Storage(None, compression_level, shuffle, chunk_rows).or_default(self._contents.default)
        else:
            storage = Storage(compression, compression_level, shuffle, chunk_rows)
        storage.check()
        with self._doing("declare"):
            for one in name if isinstance(name, Iterable) and not isinstance(name, str) else [name]:
                self._contents.declare(one, dtype, row_shape, storage, forced=compression != "inherit")

    def create(self, name: str, dtype: Any, row_shape: tuple[int, ...] = (), **options: Any) -> None:
        """Declare a dataset; the older name of `declare`.

        .. deprecated:: 0.1
           Use `declare`, which has these parameters, and raises these errors.
        """
        message = "WorkerFile.create is deprecated and stays for one release: use WorkerFile.declare"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        self.declare(name, dtype, row_shape, **options)

    def put(self, name: str, value: Any) -> None:
        """Write a scalar or an array once, without a row axis, with the next commit.

        Parameters
        ----------
        name : str
            The value; parts between "/" are groups.
        value : array_like or str
            The value, of which a copy is kept.

        Raises
        ------
        SchemaError
            Another value was put under that name (the same one again, as after a restart, changes
            nothing), it is a dataset with rows, or HDF5 has no such type.
        LockError
            As of `append`.
        """
        with self._doing("put"):
            self._contents.put(name, value)

    def set_attribute(self, name: str, value: Any, *, on: str = "/") -> None:
        """Set an attribute, from the next commit on.

        Parameters
        ----------
        name : str
            The attribute.
        value : array_like, str or h5py.Empty
            A value of any type that HDF5 keeps in an attribute.
        on : str
            The dataset, value or group that has it; "/" is the file. A name that is neither a
            dataset nor a value at the commit becomes a group. A value takes attributes only until
            it is committed.

        Raises
        ------
        SchemaError
            HDF5 does not keep such a name or type; or the value `on` is committed already.
        LockError
            As of `append`.
        """
        with self._doing("set_attribute"):
            self._contents.set_attribute(name, value, on)

    # -- what is there --------------------------------------------------------------------------------

    def attributes(self, on: str = "/") -> dict[str, Any]:
        """Return the attributes of a dataset, value or group, committed or not.

        Parameters
        ----------
        on : str
            The dataset, value or group; "/" is the file.

        Returns
        -------
        dict
            Names and values, as h5py returns them.

        Raises
        ------
        LockError
            As of `append`.
        """
        with self._doing("attributes"):
            return self._contents.attributes_of(on)

    def __repr__(self) -> str:
        return f"<WorkerFile {self._folder!r}{', closed' * self._closed}, step {self._contents.step}>"

    # -- inside --------------------------------------------------------------------------------------

    def _append(self, name: str, rows: Any) -> None:
        writer = self._writers.get(name)
        if writer is None:
            is_empty_list = isinstance(rows, (list, tuple)) and not rows
            if is_empty_list or (type(rows) is _ndarray and rows.dtype == object and not rows.size):
                return  # without a type: the rows of another rank define the dataset
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
            # Not in a signal handler: the call that it interrupted, or the next one, does it.
            if self._busy is None:
                with self._doing("append"), self._all_or_nothing(), self._segment.writing():
                    # `declare` in another thread may have moved the rows to a new writer.
                    self._writers.get(writer.name, writer).settle(self._segment.group)

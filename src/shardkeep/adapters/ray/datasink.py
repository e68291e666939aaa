"""Sink of Ray Data that publishes a set of TFRecord shards as a whole."""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import secrets
import shutil
import string
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from shardkeep._extras import import_extra
from shardkeep.errors import ExistsError, NotFoundError
from shardkeep.files.durable import durably
from shardkeep.files.file_set import FileSet
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.leftovers import is_leftover, temporary_name
from shardkeep.tfrecord import Writer
from shardkeep.tfrecord.shard_names import early_name, shard_names

if TYPE_CHECKING:
    import ray.data
    from ray.data.block import BlockAccessor
else:
    ray = import_extra("ray", "shardkeep.adapters.ray")
    ray.data = import_extra("ray.data", "shardkeep.adapters.ray")
    BlockAccessor = import_extra("ray.data.block", "shardkeep.adapters.ray").BlockAccessor

__all__ = ["TFRecordDatasink", "write_tfrecords"]


class _Written(NamedTuple):
    """The file that a write task has finished."""

    task: int
    path: str
    records: int


def write_tfrecords(
    dataset: ray.data.Dataset,
    pattern: str | os.PathLike[str],
    *,
    compression: Any = None,
    min_rows_per_file: int | None = None,
    **options: Any,
) -> list[str]:
    """Write the rows of a dataset as `tf.train.Example` into shards that appear together, or not at all.

    Parameters
    ----------
    dataset : ray.data.Dataset
    pattern : str or os.PathLike
        Path with ``{shard}`` and optionally ``{shards}``, as in
        ``"train-{shard:05d}-of-{shards:05d}.tfrecord"``, on a file system that all nodes see.
    compression : {None, "gzip", "zlib"}
        Compression of each whole file.
    min_rows_per_file : int, optional
        Rows that a task collects before it writes a file. To set the number of files, call
        ``dataset.repartition(n)`` before.
    **options
        Options of `ray.data.Dataset.write_datasink`: `concurrency` and `ray_remote_args`.

    Returns
    -------
    list of str
        Paths of the shards.

    Raises
    ------
    ExistsError
        A file of this pattern exists; raised before any work.
    NotFoundError
        The folder does not exist.
    SchemaError
        A column has a type that an Example cannot hold. Raised by Ray as a `RayTaskError` of that kind.
    DurabilityError
        Full disk, quota, no permission, I/O error.

    Notes
    -----
    Each task writes one file into a hidden folder next to the shards. When all have ended, the driver syncs
    these files and gives them their names, as `shardkeep.tfrecord.ShardWriter` does: if the last shard
    exists, all do. A task that fails, or whose worker is killed, is run again by Ray; the files of its failed
    attempts are discarded. If the job fails, the hidden folder is removed; if the driver is killed, the next
    call in this folder removes it.

    Integers and booleans are stored as int64, floats as float32, strings and binary values as bytes; lists
    and tensors flat, and a null is a feature without values.

    Examples
    --------
    >>> write_tfrecords(ray.data.range(1000), "ids-{shard}-of-{shards}.tfrecord")  # doctest: +SKIP
    """
    sink = TFRecordDatasink(pattern, compression=compression, min_rows_per_file=min_rows_per_file)
    try:
        dataset.write_datasink(sink, **options)
    finally:
        sink.discard()  # Ray does not call the sink after Ctrl-C
    return sink.paths


class TFRecordDatasink(ray.data.Datasink[Any]):
    """Sink of `ray.data.Dataset.write_datasink` into TFRecord shards; see `write_tfrecords`.

    Parameters
    ----------
    pattern, compression, min_rows_per_file
        As `write_tfrecords`.

    Attributes
    ----------
    paths : list of str
        Paths of the shards, after the job.
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        compression: Any = None,
        min_rows_per_file: int | None = None,
    ) -> None:
        self._pattern = os.path.abspath(local_path(pattern))
        self._compression = compression
        self._min_rows = min_rows_per_file
        self.paths: list[str] = []
        folder, name = os.path.split(early_name(self._pattern, 0))
        if not os.path.isdir(folder):
            raise NotFoundError(f"the folder {folder!r} does not exist: create it first", path=folder)
        self._check_names(folder)
        for left in os.listdir(folder):
            if is_leftover(folder, left):
                shutil.rmtree(os.path.join(folder, left), ignore_errors=True)
        # The name identifies the driver, so that a later one recognises the folder as left by it.
        self._staging = os.path.join(folder, temporary_name(name))

    @property
    def min_rows_per_write(self) -> int | None:
        """Number of rows that a task collects before it writes a file."""
        return self._min_rows

    def on_write_start(self, schema: Any = None) -> None:
        """Create the hidden folder; called in the driver, before the tasks.

        Parameters
        ----------
        schema : object, optional
            Not used.
        """
        with durably("create a folder for", self._pattern):
            os.makedirs(self._staging, exist_ok=True)

    def write(self, blocks: Iterable[Any], ctx: Any) -> _Written | None:
        """Write the rows of a task into one file of the hidden folder.

        Parameters
        ----------
        blocks : iterable of block
        ctx : TaskContext

        Returns
        -------
        object
            The file for `on_write_complete`; None without rows.
        """
        tables = (BlockAccessor.for_block(block).to_arrow() for block in blocks)
        filled = (table for table in tables if table.num_rows)
        first = next(filled, None)
        if first is None:
            return None
        # A second attempt of a task has another name: only the file that Ray returns is published.
        path = os.path.join(self._staging, f"{ctx.task_idx}-{secrets.token_hex(8)}")
        with Writer(path, compression=self._compression) as writer:
            for table in itertools.chain([first], filled):
                writer.write_examples(table)
            records = writer.records
        return _Written(ctx.task_idx, path, records)

    def on_write_complete(self, write_result: Any) -> None:
        """Publish the files of all tasks; called in the driver.

        Parameters
        ----------
        write_result : WriteResult
        """
        written = sorted(one for one in write_result.write_returns if one is not None)
        if not written:
            self.on_write_start()
            written = [_Written(0, os.path.join(self._staging, "empty"), 0)]
            Writer(written[0].path, compression=self._compression).close()
        paths = shard_names(self._pattern, len(written))
        with FileSet() as files:
            for path, one in zip(paths, written, strict=True):
                files.adopt(path, one.path)
        self.paths = paths
        self.discard()

    def on_write_failed(self, error: Exception) -> None:
        """Remove the hidden folder; called in the driver.

        Parameters
        ----------
        error : Exception
            Not used.
        """
        self.discard()

    def discard(self) -> None:
        """Remove the hidden folder, if it exists."""
        for _ in range(20):  # a task that is being cancelled may still write into it
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(self._staging, ignore_errors=True)
            if not os.path.exists(self._staging):
                return
            time.sleep(0.1)

    def _check_names(self, folder: str) -> None:
        parts = string.Formatter().parse(os.path.basename(self._pattern))
        taken = "".join(re.escape(text) + ("" if field is None else "[0-9]+") for text, field, _, _ in parts)
        for found in os.listdir(folder):
            if re.fullmatch(taken, found):
                path = os.path.join(folder, found)
                raise ExistsError(
                    f"{path!r} exists, which has the pattern of the shards to write: choose another pattern,"
                    " or remove the old set first",
                    path=path,
                )

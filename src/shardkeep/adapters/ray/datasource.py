"""Source of Ray Data over TFRecord files."""

from __future__ import annotations

import dataclasses
import itertools
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.errors import NotFoundError
from shardkeep.files.incomplete import Incomplete
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.paths import PathsLike
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Image, Reader, VarLen, infer_schema, read_arrow, to_arrow
from shardkeep.tfrecord.damage import Damage, OnCorrupt, check_on_corrupt, warn_of_damage
from shardkeep.tfrecord.shard_names import expand_shards
from shardkeep.world import World

if TYPE_CHECKING:
    import ray.data
    from ray.data.block import BlockMetadata
else:
    ray = import_extra("ray", "shardkeep.adapters.ray")
    ray.data = import_extra("ray.data", "shardkeep.adapters.ray")
    BlockMetadata = import_extra("ray.data.block", "shardkeep.adapters.ray").BlockMetadata

__all__ = ["TFRecordDatasource", "read_tfrecords"]

_Features = Mapping[str, FixedLen | VarLen | Image]

_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 8192
# Of a decoded image whose size the features do not state.
_IMAGE_BYTES = 1 << 20


def read_tfrecords(
    paths: PathsLike,
    features: _Features | None = None,
    *,
    on_corrupt: OnCorrupt = "raise",
    text: Collection[str] = (),
    incomplete: Incomplete = "refuse",
    **options: Any,
) -> ray.data.Dataset:
    """Read TFRecord files of `tf.train.Example` as a `ray.data.Dataset`; TensorFlow is not needed.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord files, compressed or not, on a file system that all nodes see.
    features : mapping of str to FixedLen, VarLen or Image, optional
        How to decode each feature; by default as `shardkeep.infer_schema` finds them.
    on_corrupt : {"raise", "skip", "repair"}
        Treatment of a damaged record. "raise" ends the job with an error that has file, record and offset.
        "skip" omits it, and "repair" corrects single flipped bits; both warn. The checksum of every record
        is checked in any case. For uncompressed files.
    text : collection of str
        Names of features of bytes that hold UTF-8, which become strings.
    incomplete : {"refuse", "warn", "allow"}
        Treatment of a set of shards that is not whole, as for `shardkeep.Loader`.
    **options
        Options of `ray.data.read_datasource`, such as `override_num_blocks`, `concurrency` and
        `ray_remote_args`.

    Returns
    -------
    ray.data.Dataset
        A column for each feature, with the types of `shardkeep.tfrecord.read_arrow`.

    Raises
    ------
    NotFoundError, PlanError, SchemaError
        As `shardkeep.Loader`, for the names and arguments. Errors of the content are raised when the dataset
        is used, as `ray.exceptions.RayTaskError`, which is also an instance of the error of Shardkeep.

    Notes
    -----
    A task reads a group of consecutive shards, with one thread, and yields blocks of some megabytes.

    Examples
    --------
    >>> dataset = read_tfrecords("train-*.tfrecord", on_corrupt="skip")  # doctest: +SKIP
    >>> dataset.map_batches(train)  # doctest: +SKIP
    """
    source = TFRecordDatasource(paths, features, on_corrupt=on_corrupt, text=text, incomplete=incomplete)
    return ray.data.read_datasource(source, **options)


class TFRecordDatasource(ray.data.Datasource):
    """Source of `ray.data.read_datasource` over TFRecord files; see `read_tfrecords`.

    Parameters
    ----------
    paths, features, on_corrupt, text, incomplete
        As `read_tfrecords`.
    """

    def __init__(
        self,
        paths: PathsLike,
        features: _Features | None = None,
        *,
        on_corrupt: OnCorrupt = "raise",
        text: Collection[str] = (),
        incomplete: Incomplete = "refuse",
    ) -> None:
        super().__init__()
        check_on_corrupt(on_corrupt)
        # Tasks run in another folder.
        self._paths = [os.path.abspath(local_path(path)) for path in expand_shards(paths, incomplete)]
        self._sizes = [_size_bytes(path) for path in self._paths]
        features = infer_schema(self._paths, on_corrupt=on_corrupt) if features is None else features
        self._options = _ReadOptions(dict(features), on_corrupt, text)
        self._options.check()

    def estimate_inmemory_data_size(self) -> int:
        """Return the size of the files in bytes."""
        return sum(self._sizes)

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ray.data.ReadTask]:
        """Return a task for each group of consecutive shards, of similar sizes in bytes.

        Parameters
        ----------
        parallelism : int
            Largest number of tasks.
        per_task_row_limit : int, optional
            Largest number of rows of a task.
        data_context : object, optional
            Not used.
        """
        limit = {} if per_task_row_limit is None else {"per_task_row_limit": per_task_row_limit}
        middles = np.cumsum(self._sizes) - np.array(self._sizes) / 2
        groups = middles * parallelism // max(sum(self._sizes), 1)
        tasks = []
        for _, group in itertools.groupby(range(len(self._paths)), key=lambda number: groups[number]):
            numbers = list(group)
            paths = [self._paths[number] for number in numbers]
            known = {"size_bytes": sum(self._sizes[number] for number in numbers), "input_files": paths}
            # The fields differ between releases.
            fields = {field.name: known.get(field.name) for field in dataclasses.fields(BlockMetadata)}
            read = _bind(_blocks, paths, self._options)
            tasks.append(ray.data.ReadTask(read, BlockMetadata(**fields), **limit))
        return tasks


class _ReadOptions(NamedTuple):
    features: dict[str, Any]
    on_corrupt: OnCorrupt
    text: Collection[str]

    def check(self) -> None:
        """Raise for features and names that are not valid, before a task meets them."""
        nothing = {name: np.empty((0, 1), object) for name in self.features}
        to_arrow(nothing, text=self.text)

    def row_bytes(self) -> int:
        """Return the size of the decoded values of a row, as far as the features state it."""
        known = 0
        for feature in self.features.values():
            if isinstance(feature, Image):
                size = _IMAGE_BYTES if feature.size is None else feature.size[0] * feature.size[1] * 4
                known += size * (4 if feature.dtype == "float32" else 1)
            elif isinstance(feature, FixedLen) and feature.dtype != "bytes":
                known += 8 * int(np.prod(feature.shape))
        return known


def _bind(function: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    # Not functools.partial, which has no name for Ray's messages.
    def read() -> Any:
        return function(*arguments)

    return read


def _blocks(paths: list[str], options: _ReadOptions) -> Iterator[Any]:
    """Yield the records of some files as Arrow tables."""
    for is_compressed, group in itertools.groupby(paths, lambda path: Reader(path).compression is not None):
        run = list(group)
        if is_compressed and options.on_corrupt == "raise":  # otherwise the loader refuses them
            yield read_arrow(run, options.features, threads=1, text=options.text, incomplete="allow")
        else:
            yield from _uncompressed(run, options)


def _uncompressed(paths: list[str], options: _ReadOptions) -> Iterator[Any]:
    def loader(rows: int) -> Loader:
        return Loader(
            paths,
            options.features,
            rows,
            World(0, 1),
            remainder="short",
            threads=1,
            on_corrupt=options.on_corrupt,
            incomplete="allow",
        )

    stored = sum(map(_size_bytes, paths)) // max(loader(1).positions, 1)
    whole = loader(min(_BATCH_ROWS, max(1, _BATCH_BYTES // max(stored + options.row_bytes(), 1))))
    for batch in whole:
        yield to_arrow(batch, text=options.text)
    _warn_of_damage(paths, whole.receipt(), whole.describe_data)


def _warn_of_damage(
    paths: list[str], receipt: Mapping[str, Any], describe_data: Callable[[], Mapping[str, Any]]
) -> None:
    if not receipt.keys() & {"skipped", "repaired"}:
        return
    starts = np.cumsum([0, *describe_data()["counts"]])
    for kind in ("skipped", "repaired"):
        for _, record, start_bytes, stop_bytes, *_ in receipt.get(kind, ()):
            shard = int(np.searchsorted(starts, record, side="right")) - 1
            place = paths[shard], int(record - starts[shard]), start_bytes, stop_bytes - start_bytes
            warn_of_damage(Damage(*place, "its checksum or its content is wrong", kind == "repaired"))


def _size_bytes(path: str) -> int:
    try:
        return os.path.getsize(path)
    except FileNotFoundError:
        raise NotFoundError(f"{path} does not exist", path=path) from None

"""Hugging Face datasets: TFRecord files as a `Dataset`, and batches of a `Loader` as an `IterableDataset`.

::

    to_dataset(paths, features)       all records in memory, in the columns of `read_arrow`
    to_iterable_dataset(loader)       a stream in the order of the loader

The stream has parts of consecutive steps, which `split_dataset_by_node` and the workers of a DataLoader
divide among themselves. So the nodes and workers together deliver each record once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.adapters.passes import checked_loader
from shardkeep.errors import PlanError, SchemaError
from shardkeep.loader import Loader
from shardkeep.plan.checks import MAX_WORLD_SIZE, checked_int
from shardkeep.tfrecord import FixedLen, Image, VarLen, read_arrow, to_arrow

if TYPE_CHECKING:
    import datasets
    import pyarrow
    from datasets.iterable_dataset import ArrowExamplesIterable
else:
    datasets = import_extra("datasets", "shardkeep.adapters.huggingface")
    ArrowExamplesIterable = import_extra(
        "datasets.iterable_dataset", "shardkeep.adapters.huggingface"
    ).ArrowExamplesIterable

__all__ = ["to_dataset", "to_iterable_dataset"]

_ARRAYS = {2: "Array2D", 3: "Array3D", 4: "Array4D", 5: "Array5D"}


def to_dataset(
    paths: Any,
    features: Mapping[str, FixedLen | VarLen | Image],
    *,
    text: Collection[str] = (),
    **options: Any,
) -> datasets.Dataset:
    """Read whole files of `tf.train.Example` into a `datasets.Dataset` in memory.

    Parameters
    ----------
    paths, features
        As `shardkeep.tfrecord.read_arrow`.
    text : collection of str
        Names of features of bytes that hold UTF-8, which become strings.
    **options
        Other options of `read_arrow`: `threads`, `verify`, `incomplete`, `progress`.

    Returns
    -------
    datasets.Dataset
        Images and other values of two to five dimensions are `Array2D` to `Array5D`. Encoded images, read as
        ``FixedLen((), "bytes")``, become images of Pillow with ``cast_column(name, datasets.Image())``.

    Raises
    ------
    SchemaError, CorruptRecordError, TruncatedFileError, NotFoundError, FormatError, PlanError
        As `read_arrow`.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(4):
    ...         w.write_example({"x": number, "name": b"n"})
    >>> dataset = to_dataset(w.path, {"x": sk.FixedLen(), "name": sk.FixedLen((), "bytes")}, text=["name"])
    >>> dataset[2]
    {'x': 2, 'name': 'n'}
    """
    table = read_arrow(paths, features, text=text, nested=True, **options)
    return datasets.Dataset(table.cast(_features(table).arrow_schema))


def to_iterable_dataset(
    loader: Loader, *, parts: int = 64, text: Collection[str] = ()
) -> datasets.IterableDataset:
    """Return the batches of a loader as rows of a `datasets.IterableDataset`.

    Parameters
    ----------
    loader : Loader
        A loader of all records, with features and ``world=World(0, 1)``: `split_dataset_by_node` divides
        them among the ranks.
    parts : int
        Number of parts of an epoch, `num_shards` of the dataset. Nodes and workers divide the parts among
        themselves, so it should be a multiple of nodes × workers: otherwise `split_dataset_by_node` lets each
        node read everything, and workers without a part stay idle.
    text : collection of str
        Names of features of bytes that hold UTF-8, which become strings.

    Returns
    -------
    datasets.IterableDataset
        Rows with the types of `to_dataset`, in the order of the loader; padding is left out. With a format
        such as ``with_format("numpy")`` and ``iter(batch_size=…)`` whole batches cross without a Python
        object for each value.

    Raises
    ------
    PlanError
        The loader is one rank of several, has no features, or is in mid-epoch.

    Notes
    -----
    A pass delivers the epoch where the loader stands, and does not move the loader: call
    ``loader.set_epoch(epoch)`` before each pass. ``state_dict`` of the dataset is the number of rows of the
    current part; a resumed dataset reads this part again from its beginning, and is exact.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(4):
    ...         w.write_example({"x": number})
    >>> loader = sk.Loader(w.path, {"x": sk.FixedLen()}, batch_size=2, world=sk.World(0, 1))
    >>> [row["x"] for row in to_iterable_dataset(loader)]
    [0, 1, 2, 3]
    """
    checked_loader(loader)
    if loader.features is None:
        raise PlanError("the loader has no features: pass features= to it, for example infer_schema(paths)")
    if loader.world.size > 1:
        raise PlanError(
            f"the loader is rank {loader.world.rank} of {loader.world.size}, and split_dataset_by_node would"
            " divide its records again: pass world=World(0, 1) to the loader"
        )
    if loader.position:
        raise PlanError("the loader is in mid-epoch: call reset(); the dataset itself has a state_dict")
    parts = checked_int("parts", parts, 1, MAX_WORLD_SIZE)
    text = (text,) if isinstance(text, str) else tuple(text)
    first = to_arrow(loader.peek(), text=text, nested=True)
    features = _features(first)
    kwargs = {
        "part": list(range(parts)),  # a list is what `datasets` divides
        "parts": parts,
        "loader": loader,
        "text": text,
        "stored": first.schema,
        "features": features,
    }
    info = datasets.DatasetInfo(features=features)
    return datasets.IterableDataset(ArrowExamplesIterable(_tables, kwargs), info=info)


def _tables(
    part: list[int],
    parts: int,
    loader: Loader,
    text: tuple[str, ...],
    stored: pyarrow.Schema,
    features: datasets.Features,
) -> Iterator[tuple[str, pyarrow.Table]]:
    steps, schema = loader.steps_per_epoch, features.arrow_schema
    for number in part:
        for step in range(steps * number // parts, steps * (number + 1) // parts):
            table = to_arrow(loader.batch(step), text=text, nested=True)
            # Arrow would cast images of another size into lists of another length.
            if not table.schema.equals(stored):
                raise SchemaError(f"batch {step} has images of another size: pass size= to Image")
            yield f"{number}_{step}", table.cast(schema)


def _features(table: pyarrow.Table) -> datasets.Features:
    """Return the features of a table, with the arrays and the binary values of `datasets`."""
    features = datasets.Features.from_arrow_schema(table.schema)
    for field in table.schema:
        shape, kind = [], field.type
        # `datasets.Image` takes large_binary only in recent releases.
        if str(kind) == "large_binary" and table.column(field.name).nbytes < 1 << 31:
            features[field.name] = datasets.Value("binary")
        while kind.num_fields and hasattr(kind, "list_size"):
            shape.append(kind.list_size)
            kind = kind.value_type
        if len(shape) in _ARRAYS and not kind.num_fields and "binary" not in str(kind):
            features[field.name] = getattr(datasets, _ARRAYS[len(shape)])(
                tuple(shape), np.dtype(kind.to_pandas_dtype()).name
            )
    return features

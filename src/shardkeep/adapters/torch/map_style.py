"""Map-style datasets: records of TFRecord files and rows of HDF5 files by number."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from shardkeep.adapters.random_access import Records, Rows
from shardkeep.adapters.torch.framework import torch
from shardkeep.adapters.torch.tensors import row_tensor
from shardkeep.files.incomplete import Incomplete
from shardkeep.files.paths import PathsLike
from shardkeep.tfrecord.example.features import Feature

__all__ = ["H5Dataset", "RecordDataset"]


class _ByNumber(torch.utils.data.Dataset[Any]):
    def __init__(self, elements: Records | Rows, transform: Callable[[Any], Any] | None) -> None:
        self._elements = elements
        self.transform = transform

    def __len__(self) -> int:
        return len(self._elements)

    def __getitem__(self, index: int) -> Any:
        return self.__getitems__([operator.index(index)])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        items = []
        for element in self._elements.__getitems__(indices):
            item = element
            if isinstance(element, dict):
                item = {name: row_tensor(value) for name, value in element.items()}
            items.append(item if self.transform is None else self.transform(item))
        return items

    def __repr__(self) -> str:
        return repr(self._elements).replace(type(self._elements).__name__, type(self).__name__, 1)


class RecordDataset(_ByNumber):
    """Records of TFRecord files by number, for samplers and for libraries that want a map-style dataset.

    Parameters
    ----------
    paths : path, pattern, or iterable of them
        TFRecord files without compression. The matches of a pattern are sorted.
    features : mapping of str to FixedLen, VarLen or Image, optional
        Features of the Examples; an item is then a dict of tensors, in which byte strings are `bytes`. None
        delivers the records as `bytes`.
    transform : callable, optional
        Called with each item; its result is the item.
    verify : bool
        Check the CRC of every payload.
    incomplete : {"refuse", "warn", "allow"}
        Treatment of a set of shards that is not whole, as for `shardkeep.Loader`.

    Raises
    ------
    NotFoundError, FormatError, CorruptRecordError, TruncatedFileError, SchemaError, PlanError
        As `shardkeep.Loader`; also when an item is read. After unpickling, `PlanError` for shards that have
        changed.

    Notes
    -----
    DataLoader asks for the records of a batch in one call, which reads those of each shard together. The
    dataset is small when it is pickled, and works with every start method.

    The sampler decides which records a rank reads: torch's `DistributedSampler` repeats or drops some to make
    the ranks equal. For each record once, use `shardkeep.adapters.torch.DataLoader`, which is also faster.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> with sk.tfrecord.Writer(tempfile.mkdtemp() + "/x.tfrecord") as w:
    ...     for number in range(4):
    ...         w.write_example({"x": number})
    >>> dataset = RecordDataset(w.path, {"x": sk.FixedLen()})
    >>> for batch in torch.utils.data.DataLoader(dataset, batch_size=2):
    ...     print(batch["x"])
    tensor([0, 1])
    tensor([2, 3])
    """

    def __init__(
        self,
        paths: PathsLike,
        features: Mapping[str, Feature] | None = None,
        *,
        transform: Callable[[Any], Any] | None = None,
        verify: bool = True,
        incomplete: Incomplete = "refuse",
    ) -> None:
        super().__init__(Records(paths, features, verify=verify, incomplete=incomplete), transform)


class H5Dataset(_ByNumber):
    """Rows of an HDF5 file by number, in the workers of a DataLoader with any start method.

    Parameters
    ----------
    path : path
        The file, opened for reading by `shardkeep.hdf5.open`; also a merged one with virtual datasets.
    names : str or iterable of str, optional
        Datasets with the same number of rows; by default all that lie in the root group. An item is a dict of
        their rows as tensors; text and byte strings are `bytes`.
    transform : callable, optional
        Called with each item; its result is the item.

    Raises
    ------
    ShardkeepError
        As `shardkeep.hdf5.open`; also when a row is read.
    SchemaError
        A dataset does not exist, has no rows, or has another number of rows.

    Notes
    -----
    Each process opens the file at its first access, so no handle is shared across `fork`, and the dataset
    may be pickled. DataLoader asks for the rows of a batch in one call, which reads them in the order of the
    file, consecutive rows together: a chunk is decompressed once for a batch. (A list of numbers as an index
    of h5py is several times slower than a read for each row.)

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> path = tempfile.mkdtemp() + "/x.h5"
    >>> with sk.hdf5.open(path, "w") as f:
    ...     f["x"] = [[0.0, 0.5], [1.0, 1.5]]
    >>> for batch in torch.utils.data.DataLoader(H5Dataset(path, "x"), batch_size=2):
    ...     print(batch["x"].shape)
    torch.Size([2, 2])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        names: str | Iterable[str] | None = None,
        *,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__(Rows(path, names), transform)

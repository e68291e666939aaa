"""Choice of the source of `pack`, by its content or the given kind."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from shardkeep.errors import FormatError, PlanError
from shardkeep.files.kinds.kind import identify
from shardkeep.files.paths import PathsLike, expand
from shardkeep.jobs.pack_sources.arrays import ArrayRows, read_arrays
from shardkeep.jobs.pack_sources.images import ImageFolder, read_labels
from shardkeep.jobs.pack_sources.source import PackSource
from shardkeep.jobs.pack_sources.tables import ArrowTable, CsvTable
from shardkeep.jobs.pack_sources.webdataset import WebDataset
from shardkeep.progress import Progress

__all__ = ["Arrays", "Kind", "open_source"]

Kind = Literal["auto", "images", "csv", "parquet", "arrow", "numpy", "webdataset"]
Arrays = npt.NDArray[Any] | Mapping[str, npt.ArrayLike]

_BY_CONTENT = (
    ("a Parquet file", "parquet"),
    ("an Arrow file", "arrow"),
    ("a NumPy .npy file", "numpy"),
    ("a zip archive (or .npz", "numpy"),
    ("a tar archive", "webdataset"),
    ("gzip-compressed data; inside is a tar archive", "webdataset"),
)
_BY_NAME = {
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".csv": "csv",
    ".tsv": "csv",
    ".tbz2": "webdataset",
    ".txz": "webdataset",
    ".bz2": "webdataset",
    ".xz": "webdataset",
}


def open_source(
    source: PathsLike | Arrays,
    kind: Kind,
    labels: Mapping[str, int] | str | os.PathLike[str] | None,
    dtypes: Mapping[str, str] | None,
    scan: Progress,
    executor: Executor | None,
) -> PackSource:
    """Return the source of the given kind, or of that of its content. CSV is scanned for its types."""
    if kind not in get_args(Kind):
        raise PlanError(f"kind must be one of {', '.join(get_args(Kind))}, not {kind!r}")
    if isinstance(source, (np.ndarray, Mapping)):
        return ArrayRows(source if isinstance(source, Mapping) else {"data": source})
    paths = expand(source)
    kinds = [_kind_of(path) if kind == "auto" else kind for path in paths]
    if len(set(kinds)) > 1:
        other = next(number for number, one in enumerate(kinds) if one != kinds[0])
        raise PlanError(
            f"{paths[other]}: {kinds[other]}, but {paths[0]} is {kinds[0]}; pack one kind at a time",
            path=paths[other],
        )
    found = kinds[0]
    if labels is not None and found != "images":
        raise PlanError(f"labels= needs a folder of images, but {paths[0]} is {found}")
    if dtypes is not None and found != "csv":
        raise PlanError(f"dtypes= needs CSV files, but {paths[0]} is {found}")
    if found == "images":
        if len(paths) > 1:
            raise PlanError(f"{paths[1]}: pack one folder of images at a time", path=paths[1])
        return ImageFolder(paths[0], None if labels is None else read_labels(labels), executor)
    if found == "csv":
        return CsvTable(paths, dtypes, progress=scan)
    if found == "numpy":
        return read_arrays(paths)
    return WebDataset(paths) if found == "webdataset" else ArrowTable(paths, found)


def _kind_of(path: str) -> str:
    kind = identify(path)
    if kind.name == "folder":
        return "images"
    for described, name in _BY_CONTENT:
        if kind.described.startswith(described):
            return name
    suffix = os.path.splitext(path)[1].lower()
    if kind.name == "other" and suffix in _BY_NAME:
        return _BY_NAME[suffix]
    raise FormatError(
        f"{path}: {kind.described}; pack takes a folder of images, CSV, Parquet, Arrow, NumPy and WebDataset"
        " tar files (pass kind= if it is one of them)",
        path=path,
    )

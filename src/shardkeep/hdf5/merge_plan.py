"""What a merge will do, decided before a byte is written: sources, order, the way of each dataset.

Every source is opened once here, one at a time, and everything that can be wrong with it is found
here: it is missing, unreadable, short, or its datasets do not fit those of the others.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import h5py
import numpy as np

from shardkeep.errors import CorruptDataError, NotFoundError, PlanError, SchemaError
from shardkeep.hdf5.attributes import Attributes, read_attributes
from shardkeep.hdf5.dataset_layout import Layout, read_layout, same_dtype
from shardkeep.hdf5.receipts import receipts_in
from shardkeep.hdf5.rows import describe
from shardkeep.hdf5.run_check import RunCheck
from shardkeep.hdf5.run_folder import list_ranks, list_segments
from shardkeep.hdf5.source import Source, open_source
from shardkeep.hdf5.source_rows import check_content

__all__ = ["DatasetPlan", "MergePlan", "Mode", "Part", "SourcePlan", "plan_merge"]

Mode = Literal["auto", "copy", "virtual"]
Way = Literal["chunks", "rows", "chunks and rows", "virtual", "constant"]


@dataclass(frozen=True)
class SourcePlan:
    """One file that is merged; the last three are None unless it is a sealed segment."""

    path: str
    rank: int | None = None
    sequence: int | None = None
    step: int | None = None


@dataclass(frozen=True)
class Part:
    """Rows ``[first_row, first_row + rows)`` of the result: all the rows of one source."""

    source: int
    first_row: int
    rows: int
    layout: Layout
    crc32c: str | None = None


@dataclass(frozen=True)
class DatasetPlan:
    """One dataset of the result.

    Attributes
    ----------
    way : str
        "chunks": compressed chunks are copied as they are; "rows": rows are read and written
        again; "virtual": the result points to the sources; "constant": a scalar, equal everywhere.
    reason : str
        Why that way.
    layout : Layout
        Type, chunks, filters and fill value of the result.
    parts : tuple of Part
        In the order of the result; sources without rows are left out.
    """

    name: str
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...]
    rows: int
    way: Way
    reason: str
    layout: Layout
    parts: tuple[Part, ...]
    attributes: Attributes
    dropped_attributes: tuple[str, ...]
    constant: Any = None


@dataclass(frozen=True)
class MergePlan:
    """Everything that `shardkeep.hdf5.merge` is going to do.

    `findings` says what of the run seems to be missing, or to be there twice.
    """

    output: str
    mode: Mode
    root: str
    sources: tuple[SourcePlan, ...]
    datasets: tuple[DatasetPlan, ...]
    receipts: tuple[dict[str, Any], ...]
    findings: tuple[str, ...] = ()


@dataclass
class _Seen:
    """What is known of one dataset while the sources are looked at."""

    name: str
    dtype: np.dtype[Any]
    row_shape: tuple[int, ...] | None
    first_layout: Layout
    attributes: Attributes
    present_in: list[int] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    dropped: set[str] = field(default_factory=set)
    rows: int = 0
    constant: Any = None


def plan_merge(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    mode: Mode = "auto",
    check_rows: bool = False,
) -> MergePlan:
    """Look at every source and decide how it is merged; nothing is written.

    Parameters and errors are those of `shardkeep.hdf5.merge`. `check_rows` also reads the rows of
    every segment and compares them with the hash of their commit.
    """
    if mode not in ("auto", "copy", "virtual"):
        raise PlanError(f'mode={mode!r} means nothing here: use "auto", "copy" or "virtual"')
    target = os.fspath(output)
    root, expected = _find_sources(sources)
    if any(_same_file(one.path, target) for one in expected):
        raise PlanError(f"{target!r} is the output and a source at once: choose another output", path=target)
    plans: list[SourcePlan] = []
    seen: dict[str, _Seen] = {}
    receipts: dict[str, dict[str, Any]] = {}
    strict: list[int] = []
    run = RunCheck()
    for number, one in enumerate(expected):
        with open_source(one.path) as source:
            record = source.record
            if record is None:
                plans.append(SourcePlan(one.path))
                strict.append(number)
            else:
                plans.append(SourcePlan(one.path, record.rank, record.sequence, record.step))
            if one.rank is not None and plans[-1] != one:
                message = f"{source.path!r} is not the segment that its name says: restore it from a copy"
                raise CorruptDataError(message, path=source.path)
            if record is not None:
                run.add(one.path, record, listed=one.rank is None)
            for name in source.dataset_names():
                _look_at(seen, source, number, name, plans)
                if check_rows and record is not None:
                    check_content(source, name, record.datasets[name].crc32c)
            receipts.update(receipts_in(source))
    _require_everywhere(seen, strict, plans)
    datasets = tuple(_decide(one, virtual=mode == "virtual") for one in seen.values())
    return MergePlan(target, mode, root, tuple(plans), datasets, tuple(receipts.values()), run.findings())


def _find_sources(
    sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> tuple[str, list[SourcePlan]]:
    if isinstance(sources, (str, os.PathLike)):
        root = os.fspath(sources)
        if os.path.isfile(root):
            return os.path.dirname(root) or ".", [SourcePlan(root)]
        ranks = list_ranks(root)
        plans = [
            SourcePlan(segment.path, rank, segment.sequence, segment.step)
            for rank, folder in ranks.items()
            for segment in list_segments(folder)
        ]
        if not plans:
            what = "no commit of any rank" if ranks else "no worker files"
            raise NotFoundError(f"{root!r} has {what}: there is nothing to merge", path=root)
        return root, plans
    paths = [os.fspath(path) for path in sources]
    if not paths:
        raise NotFoundError("the list of files to merge is empty: name at least one")
    counts: dict[str, int] = {}
    for path in paths:
        real = os.path.realpath(path)
        counts[real] = counts.get(real, 0) + 1
        if counts[real] > 1:
            raise PlanError(
                f"{path!r} is in the list twice: its rows would be doubled; name it once", path=path
            )
    folders = [os.path.dirname(os.path.abspath(path)) for path in paths]
    return os.path.commonpath(folders), [SourcePlan(path) for path in paths]


def _look_at(
    seen: dict[str, _Seen],
    source: Source,
    number: int,
    name: str,
    plans: list[SourcePlan],
) -> None:
    shape, dtype = source.schema(name)
    dataset = source.dataset(name)
    _refuse_what_cannot_be_merged(dataset, dtype, name, source.path)
    layout = read_layout(dataset)
    row_shape = None if shape == () else shape[1:]
    attributes, unkept = read_attributes(dataset)
    one = seen.get(name)
    if one is None:
        for other in seen:
            if other.startswith(f"{name}/") or name.startswith(f"{other}/"):
                message = f"{name!r} in {source.path!r} and {other!r} elsewhere are dataset and group at once"
                raise SchemaError(f"{message}: rename one", path=source.path)
        one = seen[name] = _Seen(name, dtype, row_shape, layout, attributes)
        one.constant = dataset[()] if row_shape is None else None
    elif not same_dtype(one.dtype, dtype) or one.row_shape != row_shape:
        raise _schemas_differ(one, dtype, row_shape, plans, number)
    elif row_shape is None and not _same_constant(one.constant, dataset[()]):
        message = f"the scalar {name!r} differs between {plans[one.present_in[0]].path!r} and {source.path!r}"
        raise SchemaError(f"{message}: it has no row axis and cannot be merged", path=source.path)
    else:
        equal, differing = one.attributes.common(attributes)
        one.attributes = equal
        one.dropped |= differing
    one.dropped |= unkept
    one.present_in.append(number)
    if row_shape is None:
        return
    rows = shape[0]
    crc32c = _check_record(source, name, rows)
    if rows:
        if not one.parts:
            one.first_layout = layout
        one.parts.append(Part(number, one.rows, rows, layout, crc32c))
        one.rows += rows


def _check_record(source: Source, name: str, rows: int) -> str | None:
    record = source.record
    if record is None:
        return None
    promised = record.datasets[name]
    if promised.rows != rows:
        message = f"{source.path!r} has {rows} rows of {name!r}, its commit says {promised.rows}"
        raise CorruptDataError(f"{message}: restore it from a copy", path=source.path)
    return promised.crc32c


def _refuse_what_cannot_be_merged(dataset: h5py.Dataset, dtype: np.dtype[Any], name: str, path: str) -> None:
    what = None
    if dataset.is_virtual:
        what = "is virtual, so rows may be missing without a sign: merge its sources"
    elif dataset.external:
        what = "keeps its rows in other files: copy it into an ordinary dataset first"
    elif _has_references(dtype):
        what = "holds references, which point nowhere in another file: leave it out"
    if what is not None:
        raise SchemaError(f"dataset {name!r} of {path!r} {what}", path=path)


def _has_references(dtype: np.dtype[Any]) -> bool:
    if dtype.names is not None:
        return any(_has_references(dtype[field]) for field in dtype.names)
    base = h5py.check_vlen_dtype(dtype)
    if base is not None and isinstance(base, np.dtype):
        return _has_references(base)
    return h5py.check_ref_dtype(dtype) is not None


def _same_constant(one: Any, two: Any) -> bool:
    if isinstance(one, h5py.Empty) or isinstance(two, h5py.Empty):
        return bool(one == two)
    # Bytes and not values: a NaN equals itself here. The dtypes were compared before.
    mine, theirs = np.asarray(one), np.asarray(two)
    return mine.shape == theirs.shape and (
        bool(np.array_equal(mine, theirs)) if mine.dtype.hasobject else mine.tobytes() == theirs.tobytes()
    )


def _schemas_differ(
    one: _Seen,
    dtype: np.dtype[Any],
    row_shape: tuple[int, ...] | None,
    plans: list[SourcePlan],
    number: int,
) -> SchemaError:
    have = _describe(one.dtype, one.row_shape)
    others = f" and {len(one.present_in) - 1} more" if len(one.present_in) > 1 else ""
    message = (
        f"dataset {one.name!r} has {have} in {plans[one.present_in[0]].path!r}{others}, "
        f"but {_describe(dtype, row_shape)} in {plans[number].path!r}: convert one of them"
    )
    return SchemaError(message, path=plans[number].path)


def _describe(dtype: np.dtype[Any], row_shape: tuple[int, ...] | None) -> str:
    return f"a scalar {dtype}" if row_shape is None else describe(dtype, row_shape)


def _require_everywhere(seen: dict[str, _Seen], strict: list[int], plans: list[SourcePlan]) -> None:
    """A worker that never appended to a dataset has no rows of it; a plain file must have it."""
    for one in seen.values():
        missing = sorted(set(strict) - set(one.present_in))
        if missing:
            first = plans[missing[0]].path
            others = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            message = (
                f"dataset {one.name!r} is in {plans[one.present_in[0]].path!r} "
                f"({len(one.present_in)} of {len(plans)} files), but not in {first!r}{others}: "
                "leave those files out, or give them the dataset"
            )
            raise SchemaError(message, path=first)


def _decide(one: _Seen, *, virtual: bool) -> DatasetPlan:
    way: Way
    if one.row_shape is None:
        way, reason, layout = "constant", "a scalar that is equal in every source", one.first_layout
    elif virtual:
        way, reason, layout = "virtual", "asked for", one.first_layout
        if not one.parts:
            way, reason = "rows", "there are none to point to"
    else:
        layout = one.first_layout.for_result(one.dtype, one.row_shape, one.rows)
        way, reason = _way(one, layout)
    return DatasetPlan(
        name=one.name,
        dtype=one.dtype,
        row_shape=one.row_shape or (),
        rows=one.rows,
        way=way,
        reason=reason,
        layout=layout,
        parts=tuple(one.parts),
        attributes=one.attributes,
        dropped_attributes=tuple(sorted(one.dropped)),
        constant=one.constant,
    )


def _way(one: _Seen, layout: Layout) -> tuple[Way, str]:
    if not layout.filters:
        return "rows", "not compressed: rows are copied and checked against their hash"
    chunk_rows = layout.chunks[0] if layout.chunks else 1
    whole = other = 0
    why: set[str] = set()
    for part in one.parts:
        obstacle = layout.obstacle_to_chunk_copy(part.layout)
        if obstacle is None and part.first_row % chunk_rows:
            obstacle = f"starts inside a chunk of {chunk_rows} rows"
        last = part.first_row + part.rows == one.rows
        if obstacle is not None:
            other += part.rows
            why.add(obstacle)
        elif part.rows % chunk_rows and not last:
            whole += part.rows // chunk_rows
            other += part.rows % chunk_rows
            why.add(f"ends inside a chunk of {chunk_rows} rows")
        else:
            whole += -(-part.rows // chunk_rows)
    if not other:
        return "chunks", "same type, chunks and filters in every source, and whole chunks"
    reason = f"{other} of {one.rows} rows are compressed anew, since a source " + " or ".join(sorted(why))
    return ("chunks and rows" if whole else "rows"), reason


def _same_file(one: str, two: str) -> bool:
    try:
        return os.path.samefile(one, two)
    except OSError:
        return False

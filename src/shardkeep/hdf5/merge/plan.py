"""What a merge will do, decided before a byte is written: sources, order, the way of each dataset.

Every source is opened once here, one at a time, and everything that can be wrong with it is found
here: it is missing, unreadable, short, or its datasets do not fit those of the others.
"""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from shardkeep.errors import CorruptDataError, PlanError, SchemaError
from shardkeep.hdf5.journal.live_view import hold_views
from shardkeep.hdf5.locking.file_version import FileVersion
from shardkeep.hdf5.merge.find_sources import SourcePlan, Sources, find_sources
from shardkeep.hdf5.merge.order import KeyOrder, by_step, check_key, read_key_order
from shardkeep.hdf5.merge.result import versions_of
from shardkeep.hdf5.merge.schema.survey import OnMismatch, SchemaSurvey, Settled
from shardkeep.hdf5.merge.strategy import Way, layout_of_result, way_of
from shardkeep.hdf5.segments.segment import H5_VERSIONS
from shardkeep.hdf5.segments.series_check import RunCheck
from shardkeep.hdf5.sources.inspection import Looker, SourceLook
from shardkeep.hdf5.sources.links import LinkLook
from shardkeep.hdf5.sources.receipts import receipts_in
from shardkeep.hdf5.sources.source import open_source
from shardkeep.hdf5.sources.templates import look_at_all
from shardkeep.hdf5.storage.attributes import Attributes
from shardkeep.hdf5.storage.casts import converted_by_hdf5
from shardkeep.hdf5.storage.chunk_table import ChunkTable
from shardkeep.hdf5.storage.dtypes import describe_dtype
from shardkeep.hdf5.storage.layout import Layout

__all__ = ["DatasetPlan", "MergePlan", "Mode", "Part", "SourcePlan", "plan_merge"]

Mode = Literal["auto", "copy", "virtual"]

# HDF5 looks through all pieces of a virtual dataset for every read.
_MOST_VIRTUAL_RUNS = 20_000


@dataclass(frozen=True)
class Part:
    """All the rows of one source in one dataset.

    Attributes
    ----------
    source : int
    first_row : int
        Where they begin in the result; in the order of a key, in the count through the sources.
    rows : int
    layout : Layout
    dtype : dtype
        In the source.
    chunks : ChunkTable or None
        Where they lie, if they can be read from there.
    plain : bool
        Whether the bytes in the file are those of a NumPy array.
    crc32c : str or None
        Hash of the rows, where it is known.
    chunks_crc32c : str or None
        Hash of the compressed chunks, where it is known.
    stored_bytes : int
    offset_bytes : int or None
        Where they begin in the source, if they lie there one after another.
    """

    source: int
    first_row: int
    rows: int
    layout: Layout
    dtype: np.dtype[Any]
    chunks: ChunkTable | None = None
    plain: bool = False
    crc32c: str | None = None
    stored_bytes: int = 0
    chunks_crc32c: str | None = None
    offset_bytes: int | None = None


@dataclass(frozen=True)
class DatasetPlan:
    """One dataset of the result.

    Attributes
    ----------
    way : str
        "chunks": compressed chunks are copied as they are; "rows": rows are read and written
        again; "virtual": the result points to the sources; "constant": what has no rows and is
        equal everywhere; "ranks": what each rank wrote once, one row for each rank.
    reason : str
        Why that way.
    layout : Layout
        Type, chunks, filters and fill value of the result.
    parts : tuple of Part
        In the order of the sources; those without rows are left out.
    keyed : bool
        Whether rows are put in the order of the key.
    values : tuple of (int, object)
        Rank and value, of what has no rows.
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
    keyed: bool = False
    put: bool = False
    values: tuple[tuple[int, Any], ...] = ()

    @property
    def stored_bytes(self) -> int:
        """What the rows take in the sources."""
        return sum(part.stored_bytes for part in self.parts)


@dataclass(frozen=True)
class MergePlan:
    """Everything that `shardkeep.hdf5.merge` is going to do; prints as a table of 80 columns.

    Attributes
    ----------
    output, mode, order_by : str
    root : str
        The folder that the sources have in common.
    sources : tuple of SourcePlan
        In the order in which they are read.
    datasets : tuple of DatasetPlan
    receipts : tuple of dict
    findings : tuple of str
        What of the run seems to be missing, or to be there twice.
    groups : dict
        Attributes of each group that are kept; ``""`` is the root.
    dropped_attributes : dict
        Names of attributes that are left out, of datasets and groups.
    links : dict
        Names beside those of datasets and groups: hard and soft links, named types.
    left_out : dict
        Why each ``object@attribute``, link or named type cannot be in the result.
    begun_ns : int
        When the first source was looked at, since the epoch.
    versions : tuple of str
        The format versions (`libver`) of the result.
    """

    output: str
    mode: Mode
    order_by: str
    root: str
    sources: tuple[SourcePlan, ...]
    datasets: tuple[DatasetPlan, ...]
    receipts: tuple[dict[str, Any], ...]
    findings: tuple[str, ...] = ()
    groups: dict[str, Attributes] = field(default_factory=dict)
    dropped_attributes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    links: dict[str, LinkLook] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    source_versions: tuple[FileVersion, ...] = field(default=(), repr=False)
    key: KeyOrder | None = field(default=None, repr=False)
    begun_ns: int = field(default=0, repr=False)
    versions: tuple[str, str] = field(default=H5_VERSIONS, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        from shardkeep.hdf5.merge.plan_text import plan_dict

        return plan_dict(self)

    def __str__(self) -> str:
        from shardkeep.hdf5.merge.plan_text import plan_text

        return plan_text(self)


def plan_merge(
    sources: Sources,
    output: str | os.PathLike[str],
    *,
    mode: Mode = "auto",
    order_by: str = "rank",
    on_mismatch: OnMismatch = "refuse",
    check_rows: bool = False,
    views: contextlib.ExitStack | None = None,
) -> MergePlan:
    """Look at every source and decide how it is merged; nothing is written.

    Parameters and errors are those of `shardkeep.hdf5.merge`. `check_rows` also reads all rows:
    they must be readable, and those of segments have the hash of their commit. Files that a
    collector writes stay as they were looked at until `views` is closed, or this returns.
    """
    if views is None:
        with contextlib.ExitStack() as views:
            return plan_merge(
                sources,
                output,
                mode=mode,
                order_by=order_by,
                on_mismatch=on_mismatch,
                check_rows=check_rows,
                views=views,
            )
    if mode not in ("auto", "copy", "virtual"):
        raise PlanError(f'mode={mode!r} means nothing here: use "auto", "copy" or "virtual"')
    if on_mismatch not in ("refuse", "promote"):
        raise PlanError(f'on_mismatch={on_mismatch!r} means nothing here: use "refuse" or "promote"')
    begun_ns = time.time_ns()
    target = os.fspath(output)
    root, expected = find_sources(sources)
    _refuse_output_as_source(target, expected)
    held = hold_views((one.path for one in expected if one.rank is None), views)
    looker = Looker(addresses=mode != "virtual", rows=check_rows)
    survey, run = SchemaSurvey(), RunCheck()
    looks: list[SourceLook] = []
    plans: list[SourcePlan] = []
    receipts: dict[str, dict[str, Any]] = {}
    for one, look in zip(expected, look_at_all(looker, [one.path for one in expected], held), strict=True):
        plans.append(_checked(one, look))
        looks.append(look)
        if look.record is not None:
            run.add(one.path, look.record, listed=one.rank is None)
            receipt = look.record.receipt
            if receipt is not None:
                receipts[str(receipt.get("id", look.record.incarnation))] = receipt
        elif look.has_receipts:
            with open_source(one.path) as source:
                receipts.update(receipts_in(source))
        survey.add(look, plans[-1])
    agreed = survey.settle(on_mismatch)
    settled = agreed.datasets
    if order_by == "step":
        order = by_step(plans)
        plans, looks = [plans[i] for i in order], [looks[i] for i in order]
    key, findings = _key(order_by, settled, plans, looks)
    datasets = tuple(_plan_dataset(one, looks, key, looker, virtual=mode == "virtual") for one in settled)
    if key is not None and mode == "virtual":
        runs = key.count_runs()
        if runs > _MOST_VIRTUAL_RUNS:
            message = f"in the order of {order_by!r} the rows change their source {runs:,} times, too often"
            raise PlanError(f'{message} for a virtual file (at most {_MOST_VIRTUAL_RUNS:,}): use mode="copy"')
    dropped = {one.name: one.dropped_attributes for one in datasets if one.dropped_attributes}
    plan = MergePlan(
        output=target,
        mode=mode,
        order_by=order_by,
        root=root,
        sources=tuple(plans),
        datasets=datasets,
        receipts=tuple(receipts.values()),
        findings=run.findings() + findings,
        groups=agreed.groups,
        dropped_attributes={**dropped, **agreed.dropped_attributes},
        links=agreed.links,
        left_out=agreed.left_out,
        source_versions=tuple(look.version for look in looks),
        key=key,
        begun_ns=begun_ns,
    )
    return replace(plan, versions=versions_of(plan))


def _refuse_output_as_source(target: str, expected: list[SourcePlan]) -> None:
    try:
        there = os.stat(target)
    except OSError:
        return
    for one in expected:
        try:
            same = os.path.samestat(os.stat(one.path), there)
        except OSError:
            continue
        if same:
            message = f"{target!r} is the output and a source at once: choose another output"
            raise PlanError(message, path=target)


def _checked(expected: SourcePlan, look: SourceLook) -> SourcePlan:
    if look.record is None:
        plan = SourcePlan(expected.path)
    else:
        plan = SourcePlan(expected.path, look.record.rank, look.record.sequence, look.record.step)
    if expected.rank is not None and plan != expected:
        message = f"{expected.path!r} is not the segment that its name says: restore it from a copy"
        raise CorruptDataError(message, path=expected.path)
    return plan


def _key(
    order_by: str, settled: list[Settled], plans: list[SourcePlan], looks: list[SourceLook]
) -> tuple[KeyOrder | None, tuple[str, ...]]:
    if order_by in ("rank", "step"):
        return None, ()
    for one in settled:
        if one.name == order_by:
            check_key(one.name, one.dtype, one.row_shape)
            rows = [look.datasets[order_by].rows if order_by in look.datasets else 0 for look in looks]
            return read_key_order(order_by, plans, rows, one.dtype)
    names = ", ".join(repr(one.name) for one in settled[:5])
    message = f'order_by={order_by!r} is neither "rank", "step" nor a dataset of the sources ({names}, …)'
    raise PlanError(message)


def _plan_dataset(
    one: Settled, looks: list[SourceLook], key: KeyOrder | None, looker: Looker, *, virtual: bool
) -> DatasetPlan:
    parts: list[Part] = []
    first_row = 0
    for number, look in enumerate(looks):
        found = look.datasets.get(one.name)
        if found is not None and found.rows and one.row_shape is not None:
            plain = looker.is_plain(found)
            parts.append(
                Part(
                    number,
                    first_row,
                    found.rows,
                    found.layout,
                    found.dtype,
                    found.chunks,
                    plain,
                    found.crc32c,
                    found.stored_bytes,
                    found.chunks_crc32c,
                    found.offset_bytes,
                )
            )
            first_row += found.rows
    keyed = key is not None and _is_keyed(one, looks, key)
    if virtual and one.converted:
        _require_conversion(one, parts, looks)
    if virtual and keyed and one.dtype.hasobject and one.dtype.kind != "O":
        # HDF5 2.0.0 looks for the values in the heap of another source.
        message = (
            f"{one.name!r} has variable-length values inside {describe_dtype(one.dtype)} values, which HDF5"
        )
        raise SchemaError(
            f'{message} cannot read through a virtual dataset in the order of a key: use mode="copy"'
        )
    layout = layout_of_result(one, parts, first_row, virtual=virtual)
    way, reason = way_of(one, parts, layout, first_row, virtual=virtual, keyed=keyed)
    if key is not None and not keyed and one.row_shape is not None:
        reason = f"{reason}; by rank, since it has no row for each key"
    return DatasetPlan(
        name=one.name,
        dtype=one.dtype,
        row_shape=one.row_shape or (),
        rows=first_row,
        way=way,
        reason=reason,
        layout=layout,
        parts=tuple(parts),
        attributes=one.attributes,
        dropped_attributes=one.dropped_attributes,
        keyed=keyed,
        put=one.put,
        values=one.values,
    )


def _require_conversion(one: Settled, parts: list[Part], looks: list[SourceLook]) -> None:
    for part in parts:
        if not converted_by_hdf5(part.dtype, one.dtype):
            path = looks[part.source].path
            message = (
                f"{one.name!r} has {describe_dtype(part.dtype)} in {path!r}, which HDF5 does not read as"
            )
            message = f"{message} {describe_dtype(one.dtype)}"
            raise SchemaError(f'{message}: use mode="copy"', path=path)


def _is_keyed(one: Settled, looks: list[SourceLook], key: KeyOrder) -> bool:
    """Whether a dataset has a row for each key; refuses one that has that in most sources only.

    One row a step may by chance be as many as the keys of a last batch.
    """
    if one.row_shape is None:
        return False
    rows = np.array([look.datasets[one.name].rows if one.name in look.datasets else 0 for look in looks])
    keys = np.diff(key.starts)
    differ = np.flatnonzero(rows != keys)
    if len(differ) == 0:
        return True
    equal = np.flatnonzero((rows == keys) & (keys > 0))
    if 2 * len(equal) <= np.count_nonzero(keys):
        return False
    where = looks[int(differ[0])].path
    message = (
        f"{one.name!r} has {rows[differ[0]]} rows in {where!r} for {keys[differ[0]]} values of {key.name!r}, "
        f"although both are equally many in {looks[int(equal[0])].path!r}"
    )
    raise SchemaError(f"{message}: rows and keys must be appended together", path=where)

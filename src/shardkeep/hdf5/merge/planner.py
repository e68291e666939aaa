"""Planning of a merge: every source is inspected, every dataset gets its strategy, nothing is written.

Each source is opened once and closed again. An error of a source, such as a missing file, damage or a
schema that differs from the others, is raised here, before the result exists. Compressed chunks are copied
as they are where the source has the layout of the result and its rows begin and end at the edge of a
chunk; other rows are read, compressed again and written.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardkeep.errors import CorruptDataError, PlanError, SchemaError
from shardkeep.files.kinds.urls import path_or_url
from shardkeep.files.paths import size_of
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.hdf5.journal.live_view import hold_views
from shardkeep.hdf5.merge.find_sources import SourcePlan, Sources, find_sources
from shardkeep.hdf5.merge.order import KeyOrder, by_step, read_key_order
from shardkeep.hdf5.merge.plan import DatasetPlan, MergePlan, Mode, Part, Strategy
from shardkeep.hdf5.merge.provenance import read_findings
from shardkeep.hdf5.merge.result import versions_of
from shardkeep.hdf5.merge.schema import OnMismatch, SchemaUnifier, UnifiedDataset
from shardkeep.hdf5.segments.series_check import RunCheck
from shardkeep.hdf5.sources.inspection import Inspector, SourceInfo
from shardkeep.hdf5.sources.receipts import committed_receipt, receipts_in
from shardkeep.hdf5.sources.source import open_source
from shardkeep.hdf5.sources.templates import inspect_all
from shardkeep.hdf5.storage.casts import fits
from shardkeep.hdf5.storage.dtypes import describe, describe_dtype
from shardkeep.hdf5.storage.layout import Layout, chunk_rows_of
from shardkeep.progress import Count, Parts

__all__ = ["plan_merge"]

# HDF5 searches all pieces of a virtual dataset for every read.
_MOST_VIRTUAL_RUNS = 20_000


@accepts_urls("sources", folders=True)
def plan_merge(
    sources: Sources,
    output: str | os.PathLike[str],
    *,
    mode: Mode = "auto",
    order_by: str = "rank",
    on_mismatch: OnMismatch = "refuse",
    check_rows: bool = False,
    views: contextlib.ExitStack | None = None,
    parts: Parts | None = None,
) -> MergePlan:
    """Inspect every source and decide how it is merged; nothing is written.

    Parameters
    ----------
    sources, output, mode, order_by, on_mismatch
        As for `shardkeep.hdf5.merge`.
    check_rows : bool
        Whether to read all rows too: they must be readable, and those of segments must have the
        hash of their commit.
    views : contextlib.ExitStack, optional
        Files that a collector writes keep the inspected contents until this is closed; without it
        until the function returns.
    parts : Parts, optional
        Progress, with the parts "inspect" and "sort keys"; the size of the sources becomes its total.

    Returns
    -------
    MergePlan

    Raises
    ------
    NotFoundError, FormatError, CorruptDataError, TruncatedFileError, LockError, SchemaError, PlanError
        As for `shardkeep.hdf5.merge`.
    """
    if mode not in ("auto", "copy", "virtual"):
        raise PlanError(f'mode={mode!r} is not valid: use "auto", "copy" or "virtual"')
    if on_mismatch not in ("refuse", "promote"):
        raise PlanError(f'on_mismatch={on_mismatch!r} is not valid: use "refuse" or "promote"')
    begun_ns = time.time_ns()
    target = path_or_url(output)
    root, expected = find_sources(sources)
    _refuse_output_as_source(target, expected)
    with contextlib.ExitStack() as own:
        held = hold_views((one.path for one in expected if one.rank is None), own if views is None else views)
        inspector = Inspector(addresses=mode != "virtual", rows=check_rows)
        unifier, run = SchemaUnifier(), RunCheck()
        infos: list[SourceInfo] = []
        plans: list[SourcePlan] = []
        receipts: dict[str, dict[str, Any]] = {}
        earlier: list[str] = []
        parts = parts or Parts(None, None, {"inspect": 1, "sort keys": 1})
        sizes = [size_of(one.path) for one in expected]  # the inspection says what is wrong
        count = Count(parts.begin("inspect"), sum(sizes))
        count.add(0)
        inspected = inspect_all(inspector, [one.path for one in expected], held, sizes)
        for one, info, size_bytes in zip(expected, inspected, sizes, strict=True):
            count.add(size_bytes)
            plans.append(_source_plan(one, info))
            infos.append(info)
            if info.record is not None:
                run.add(one.path, info.record, listed=one.rank is None)
                receipt = info.record.receipt
                if receipt is not None:
                    loader = str(receipt.get("id", info.record.incarnation))
                    receipts[loader] = committed_receipt(one.path, receipt)
            elif info.has_receipts:
                with open_source(one.path) as source:
                    receipts.update(receipts_in(source))
                    earlier += [
                        f"{text}, when {one.path!r} was merged" for text in read_findings(source.file)
                    ]
            unifier.add(info, plans[-1])
        schema = unifier.unify(on_mismatch)
        if order_by == "step":
            order = by_step(plans)
            plans, infos = [plans[i] for i in order], [infos[i] for i in order]
        key, findings = _key_order(order_by, schema.datasets, plans, infos, parts)
        datasets = tuple(
            _plan_dataset(one, infos, key, inspector, virtual=mode == "virtual") for one in schema.datasets
        )
        if key is not None and mode == "virtual":
            runs = sum(len(first) for first, *_ in key.runs())
            if runs > _MOST_VIRTUAL_RUNS:
                message = (
                    f"in the order of {order_by!r} the rows change their source {runs:,} times, too often"
                )
                raise PlanError(
                    f'{message} for a virtual file (at most {_MOST_VIRTUAL_RUNS:,}): use mode="copy"'
                )
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
            earlier_findings=tuple(earlier),
            groups=schema.groups,
            dropped_attributes={**dropped, **schema.dropped_attributes},
            links=schema.links,
            orders=schema.orders,
            left_out=schema.left_out,
            source_versions=tuple(info.version for info in infos),
            key=key,
            begun_ns=begun_ns,
        )
        return replace(plan, versions=versions_of(plan))


def _refuse_output_as_source(target: str, expected: list[SourcePlan]) -> None:
    with contextlib.suppress(OSError):
        there = os.stat(target)
        for one in expected:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(one.path), there):
                    message = f"{target!r} is the output and a source at once: choose another output"
                    raise PlanError(message, path=target)


def _source_plan(expected: SourcePlan, info: SourceInfo) -> SourcePlan:
    if info.record is None:
        plan = SourcePlan(expected.path)
    else:
        plan = SourcePlan(expected.path, info.record.rank, info.record.sequence, info.record.step)
    if expected.rank is not None and plan != expected:
        message = f"{expected.path!r} is not the segment that its name says: restore it from a copy"
        raise CorruptDataError(message, path=expected.path)
    return plan


def _key_order(
    order_by: str,
    unified: list[UnifiedDataset],
    plans: list[SourcePlan],
    infos: list[SourceInfo],
    parts: Parts,
) -> tuple[KeyOrder | None, tuple[str, ...]]:
    if order_by in ("rank", "step"):
        return None, ()
    for one in unified:
        if one.name == order_by:
            if one.row_shape != () or one.dtype.kind not in "iu":
                what = "no rows" if one.row_shape is None else describe(one.dtype, one.row_shape)
                raise SchemaError(f"order_by={order_by!r}: it has {what}; a key is one integer for each row")
            rows = [info.rows_of(order_by) for info in infos]
            return read_key_order(order_by, plans, rows, one.dtype, parts.begin("sort keys"))
    names = ", ".join(repr(one.name) for one in unified[:5])
    message = f'order_by={order_by!r} is neither "rank", "step" nor a dataset of the sources ({names}, …)'
    raise PlanError(message)


def _plan_dataset(
    one: UnifiedDataset, infos: list[SourceInfo], key: KeyOrder | None, inspector: Inspector, *, virtual: bool
) -> DatasetPlan:
    parts: list[Part] = []
    first_row = 0
    for number, info in enumerate(infos):
        found = info.datasets.get(one.name)
        rows = 0 if found is None else found.rows
        if found is not None and rows and one.row_shape is not None:
            part = Part(
                number,
                first_row,
                rows,
                found.layout,
                found.dtype,
                found.chunks,
                inspector.is_plain(found),
                found.crc32c,
                found.chunks_crc32c,
                found.stored_bytes,
                found.offset_bytes,
            )
            parts.append(part)
            first_row += rows
    keyed = key is not None and _is_keyed(one, infos, key)
    if virtual:
        _require_virtual(one, parts, infos, keyed=keyed)
    layout = _layout_of_result(one, parts, infos, first_row, virtual=virtual)
    strategy, reason = _strategy(one, parts, layout, first_row, virtual=virtual, keyed=keyed)
    if key is not None and not keyed and one.row_shape is not None:
        reason = f"{reason}; by rank, since it has no row for each key"
    return DatasetPlan(
        name=one.name,
        dtype=one.dtype,
        row_shape=one.row_shape or (),
        rows=first_row,
        strategy=strategy,
        reason=reason,
        layout=layout,
        parts=tuple(parts),
        attributes=one.attributes,
        dropped_attributes=one.dropped_attributes,
        keyed=keyed,
        put=one.put,
        values=one.values,
        exact=one.exact,
    )


def _require_virtual(one: UnifiedDataset, parts: list[Part], infos: list[SourceInfo], *, keyed: bool) -> None:
    for part in parts if one.converted else ():
        if not fits(part.dtype, one.dtype):
            path = infos[part.source].path
            there, wanted = describe_dtype(part.dtype), describe_dtype(one.dtype)
            message = f"{one.name!r} has {there} in {path!r}, which HDF5 does not read as {wanted}"
            raise SchemaError(f'{message}: use mode="copy"', path=path)
    if keyed and one.dtype.hasobject and one.dtype.kind != "O":
        # HDF5 2.0.0 reads the values from the heap of another source.
        message = f"{one.name!r} has variable-length values inside {describe_dtype(one.dtype)} values"
        reason = "HDF5 cannot read these through a virtual dataset in the order of a key"
        raise SchemaError(f'{message}; {reason}: use mode="copy"')


def _is_keyed(one: UnifiedDataset, infos: list[SourceInfo], key: KeyOrder) -> bool:
    """Return whether a dataset has a row for each key; refuse one that has that in most sources only.

    A dataset with one row per step may by chance have as many rows as a last batch has keys.
    """
    if one.row_shape is None:
        return False
    rows = np.array([info.rows_of(one.name) for info in infos])
    keys = np.diff(key.starts)
    differ = np.flatnonzero(rows != keys)
    if len(differ) == 0:
        return True
    equal = np.flatnonzero((rows == keys) & (keys > 0))
    if 2 * len(equal) <= np.count_nonzero(keys):
        return False
    where = infos[int(differ[0])].path
    message = (
        f"{one.name!r} has {rows[differ[0]]} rows in {where!r} for {keys[differ[0]]} values of {key.name!r}, "
        f"although both are equally many in {infos[int(equal[0])].path!r}"
    )
    raise SchemaError(f"{message}: rows and keys must be appended together", path=where)


def _layout_of_result(
    one: UnifiedDataset, parts: Sequence[Part], infos: Sequence[SourceInfo], rows: int, *, virtual: bool
) -> Layout:
    """Return the layout of the first source with rows, adapted to the result.

    A segment without filters has no chunks, so that it is small, and not because its user wants none.
    """
    layout = parts[0].layout if parts else one.layout
    if one.converted:
        layout = layout.converted(one.dtype)
    of_segment = bool(parts) and infos[parts[0].source].record is not None
    if one.row_shape is None or virtual or layout.chunks is not None or not of_segment:
        return layout
    if 0 in one.row_shape:
        return replace(layout, filters=())
    chunk_rows = min(chunk_rows_of(one.dtype, one.row_shape), max(1, rows))
    return replace(layout, chunks=(chunk_rows, *one.row_shape))


def _strategy(
    one: UnifiedDataset, parts: Sequence[Part], layout: Layout, rows: int, *, virtual: bool, keyed: bool
) -> tuple[Strategy, str]:
    """Return the strategy for a dataset, and the reason."""
    if one.row_shape is None:
        what = "written once" if one.put else "a scalar"
        if len(one.values) > 1:
            return "ranks", f"{what}, and not equal: one row for each of {len(one.values):,} ranks"
        return "constant", f"{what}, and equal in every source"
    if virtual:
        if not parts:
            return "rows", "there are none to point to"
        return "virtual", "points to the sources" + (" in the order of the key" if keyed else "")
    if keyed:
        return "rows", "put in the order of the key, one by one"
    if not layout.filters:
        return "rows", "copied and checked, since not compressed"
    chunk_rows = layout.chunks[0] if layout.chunks else 1
    whole_chunks = other_rows = 0
    obstacles: set[str] = set()
    for part in parts:
        obstacle = layout.obstacle_to_chunk_copy(part.layout)
        if obstacle is None and part.chunks is None:
            obstacle = "has chunks whose places HDF5 does not report reliably"
        if obstacle is None and part.first_row % chunk_rows:
            obstacle = f"starts inside a chunk of {chunk_rows} rows"
        is_last = part.first_row + part.rows == rows
        if obstacle is not None:
            other_rows += part.rows
            obstacles.add(obstacle)
        elif part.rows % chunk_rows and not is_last:
            whole_chunks += part.rows // chunk_rows
            other_rows += part.rows % chunk_rows
            obstacles.add(f"ends inside a chunk of {chunk_rows} rows")
        else:
            whole_chunks += -(-part.rows // chunk_rows)
    if not other_rows:
        return "chunks", "same type, chunks and filters in every source, and whole chunks"
    reason = f"{other_rows} of {rows} rows are compressed again, since a source "
    return ("chunks and rows" if whole_chunks else "rows"), reason + " or ".join(sorted(obstacles))

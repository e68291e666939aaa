"""The plan of a merge as text for people and as JSON for programs."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from shardkeep.hdf5.storage.dtypes import describe, describe_dtype

if TYPE_CHECKING:
    from shardkeep.hdf5.merge.merge import MergeReport
    from shardkeep.hdf5.merge.plan import DatasetPlan, MergePlan

__all__ = ["left_out_lines", "plan_dict", "plan_text"]

_WIDTH = 80
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")


def plan_dict(plan: MergePlan) -> dict[str, Any]:
    """Return a plan as JSON can hold it."""
    return {
        "output": plan.output,
        "mode": plan.mode,
        "order_by": plan.order_by,
        "sources": [
            {"path": one.path, "rank": one.rank, "sequence": one.sequence, "step": one.step}
            for one in plan.sources
        ],
        "datasets": [
            {
                "name": one.name,
                "type": _type(one),
                "rows": one.rows,
                "bytes": one.stored_bytes,
                "way": one.way,
                "reason": one.reason,
                "order": _order(one, plan),
                "dropped_attributes": list(one.dropped_attributes),
            }
            for one in plan.datasets
        ],
        "findings": list(plan.findings),
        "dropped_attributes": {name: list(names) for name, names in plan.dropped_attributes.items()},
        "links": {name: one.described for name, one in plan.links.items()},
        "left_out": dict(plan.left_out),
    }


def plan_text(plan: MergePlan) -> str:
    """Return a plan in lines of at most 80 columns, but for names that are longer."""
    return "\n".join(_escaped(line) for line in _lines(plan))


def _lines(plan: MergePlan) -> Iterator[str]:
    stored = _size(sum(one.stored_bytes for one in plan.datasets))
    kind = "virtual" if plan.mode == "virtual" else "copy"
    files = f"{len(plan.sources):,} file{'' if len(plan.sources) == 1 else 's'}"
    yield from _wrapped(f"{files} into {plan.output!r}: {kind}, {stored}, by {plan.order_by}", "")
    width = min(30, max((len(one.name) for one in plan.datasets), default=0))
    for one in plan.datasets:
        yield ""
        if one.way in ("constant", "ranks"):
            yield f"{one.name:{width}}  {_type(one)}"
        else:
            size = _size(one.stored_bytes)
            yield f"{one.name:{width}}  {one.rows:>14,} rows  {size:>10}  by {_order(one, plan)}"
            yield from _wrapped(_type(one))
        yield from _wrapped(f"{one.way}: {one.reason}")
    if plan.links:
        yield ""
    for name, link in plan.links.items():
        yield from _wrapped(f"{name}: {link.described}", "")
    yield from (line for one in left_out_lines(plan) for line in ("", *_wrapped(one, "")))
    for finding in plan.findings:
        yield ""
        yield from _wrapped(f"finding: {finding}", "")


def left_out_lines(about: MergePlan | MergeReport) -> Iterator[str]:
    """Give what a merge leaves out, one clause for each object."""
    for name, attributes in about.dropped_attributes.items():
        differ = [one for one in attributes if f"{name}@{one}" not in about.left_out]
        if differ:
            yield f"{name}: attributes that differ between the files are left out: {', '.join(differ)}"
    for name, reason in about.left_out.items():
        yield f"{name} is left out: {reason}"


def _order(one: DatasetPlan, plan: MergePlan) -> str:
    if plan.key is None:
        return plan.order_by
    return plan.order_by if one.keyed else "rank"


def _type(one: DatasetPlan) -> str:
    if one.way in ("constant", "ranks"):
        return describe_dtype(one.dtype)
    return describe(one.dtype, one.row_shape)


def _wrapped(text: str, indent: str = "    ") -> list[str]:
    return textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=indent,
        subsequent_indent=indent or "  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} bytes"
    power = min((count.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{count / 1024**power:.1f} {_UNITS[power]}"


def _escaped(text: str) -> str:
    """Escape control characters: a name in a file must not steer a terminal."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)

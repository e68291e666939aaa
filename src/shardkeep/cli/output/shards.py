"""Output of ``split``, ``concat``, ``pack`` and ``index``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from shardkeep.cli.output.console import facts, listing, print_parts
from shardkeep.errors import one_line
from shardkeep.quantities import counted, human_bytes, listed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardkeep.jobs import PackReport, ShardFile, SplitReport
    from shardkeep.tfrecord import Index
    from shardkeep.tfrecord.damage import Damage

__all__ = ["damage_lines", "print_indexes", "print_pack", "print_split"]

_SHOWN_FILES = 12
_SHOWN_LABELS = 12
_SHOWN_BAD = 5


def print_split(report: SplitReport) -> None:
    """Print the report of `split` or `concat`."""
    how = "" if report.mode == "concat" else f", {report.mode}"
    checked = "every checksum" if report.verified else "lengths and order, not the payloads"
    rows = {
        "read": f"{report.records:,} records from {counted(len(report.sources), 'file')}",
        "written": f"{_files(report.outputs)}{how}, {human_bytes(report.bytes)}",
        "verified": f"{checked}, read back from the new file{'' if len(report.outputs) == 1 else 's'}",
        "digest": report.digest,
        "took": _took(report.bytes, report.seconds),
    }
    parts: list[RenderableType] = [facts(rows), _listing(report.outputs)]
    if report.damaged:
        parts.append("\n".join(damage_lines(report.damaged)))
    print_parts(*parts)


def damage_lines(damaged: Sequence[Damage]) -> list[str]:
    """Return a line for each damaged record, or for the first ones and the number of the others."""
    lines = [one_line(str(one)) for one in damaged[:_SHOWN_BAD]]
    if len(damaged) > _SHOWN_BAD:
        lines.append(f"… and {len(damaged) - _SHOWN_BAD:,} more (--json lists them)")
    return lines


def print_pack(report: PackReport) -> None:
    """Print the report of `pack`."""
    shuffled = "" if report.shuffle is None else f", shuffled with seed {report.shuffle}"
    source = listed(map(one_line, report.sources[:1]), len(report.sources)) or "arrays"
    rows = {
        "packed": f"{report.records:,} records from {source} ({report.kind}){shuffled}",
        "written": f"{_files(report.outputs)}, {human_bytes(report.bytes)}",
        "features": ", ".join(f"{one_line(name)} {kind}" for name, kind in sorted(report.features.items())),
    }
    if report.labels is not None:
        labels = sorted(report.labels.items(), key=lambda one: one[1])
        shown = [f"{number} {one_line(name)}" for name, number in labels[:_SHOWN_LABELS]]
        rest = len(labels) - len(shown)
        rows["labels"] = ", ".join(shown) + (f", … ({rest:,} more)" if rest else "")
    if report.skipped:
        rows["skipped"] = counted(report.skipped, "bad record")
    if report.left_out:
        rows["left out"] = f"{counted(report.left_out, 'file')} without an image"
    rows["took"] = _took(report.bytes, report.seconds)
    parts: list[RenderableType] = [facts(rows), _listing(report.outputs)]
    remarks = [one_line(note) for note in report.notes]
    remarks += [f"skipped: {one_line(reason)}" for reason in report.bad[:_SHOWN_BAD]]
    if report.skipped > _SHOWN_BAD:
        remarks.append(f"… and {report.skipped - _SHOWN_BAD:,} more (--json lists 20)")
    if remarks:
        parts.append("\n".join(remarks))
    print_parts(*parts)


def print_indexes(indexes: dict[str, Index]) -> None:
    """Print the indexes of `shardkeep.tfrecord.build_index`, by path."""
    rows = [(path, len(one), one.size_bytes) for path, one in indexes.items()]
    total = f"{sum(records for _, records, _ in rows):,} records in {counted(len(rows), 'file')}"
    print_parts(_table(rows), total)


def _files(outputs: tuple[ShardFile, ...]) -> str:
    return counted(len(outputs), "file")


def _took(size_bytes: int, seconds: float) -> str:
    if seconds < 0.1:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s, {size_bytes / seconds / 1e6:,.0f} MB/s with syncing to disk"


def _listing(outputs: tuple[ShardFile, ...]) -> Table:
    return _table([(os.fspath(one.path), one.records, one.bytes) for one in outputs])


def _table(files: Sequence[tuple[str, int, int]]) -> Table:
    """Return a table of path, records and size of each file; of many, the first ones and the last."""
    table = listing("file", "records", "size", right=["records", "size"])
    shown = files if len(files) <= _SHOWN_FILES else files[: _SHOWN_FILES - 2]
    for path, records, size in shown:
        table.add_row(one_line(path), f"{records:,}", human_bytes(size))
    if len(shown) < len(files):
        path, records, size = files[-1]
        table.add_row(f"… {len(files) - len(shown) - 1:,} more …")
        table.add_row(one_line(path), f"{records:,}", human_bytes(size))
    return table

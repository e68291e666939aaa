"""How `merge` and `verify` show what they found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table

from shardkeep.cli.output import facts, print_parts
from shardkeep.cli.text import counted, human_bytes, printable

if TYPE_CHECKING:
    from shardkeep.jobs import VerifyReport

__all__ = ["print_verify", "schema_table"]

_SHOWN_FILES = 40
_SHOWN_NAMES = 12
_SHOWN_RANKS = 8


def schema_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of a `SchemaError`: who has what."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("name", "has", "files", "which"):
        table.add_column(column, justify="right" if column == "files" else "left", overflow="fold")
    names = list(dict.fromkeys(row["name"] for row in rows))
    shown = set(names[:_SHOWN_NAMES])
    for row in rows:
        if row["name"] in shown:
            table.add_row(printable(row["name"]), printable(row["has"]), f"{row['files']:,}", _which(row))
    if len(names) > len(shown):
        table.add_row(f"and {len(names) - len(shown):,} more")
    return table


def _which(row: Mapping[str, Any]) -> str:
    """Name the ranks, or the first files."""
    ranks = row["ranks"]
    if ranks:
        more = ", …" if len(ranks) > _SHOWN_RANKS else ""
        return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:_SHOWN_RANKS]))}{more}"
    return ", ".join(printable(path) for path in row["first"]) + (
        ", …" if row["files"] > len(row["first"]) else ""
    )


def print_verify(report: VerifyReport) -> None:
    """Print what `shardkeep.jobs.verify` found: every file with findings, and a few of the others."""
    bad = [one for one in report.files if one.findings]
    shown = bad + [one for one in report.files if not one.findings][: max(0, _SHOWN_FILES - len(bad))]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("file", "kind", "size", "records or rows", "verdict"):
        right = column in ("size", "records or rows")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    for one in report.files:
        if one in shown:
            size = "" if one.kind == "run" else human_bytes(one.file_bytes)
            items = counted(one.items, "commit") if one.kind == "run" else f"{one.items:,}"
            table.add_row(printable(one.path), one.kind, size, items, "DAMAGED" if one.findings else "ok")
    parts: list[RenderableType] = [table]
    if len(shown) < len(report.files):
        parts.append(f"and {len(report.files) - len(shown):,} more without findings")
    found = [(one.path, text) for one in bad for text in one.findings]
    # Most messages name the file themselves.
    lines = [printable(text if path in text else f"{path}: {text}") for path, text in found]
    if lines:
        parts.append("\n".join(lines))
    read_bytes = sum(one.file_bytes for one in report.files)
    verdict = "all as it was written" if report.ok else f"{len(bad):,} with findings"
    parts.append(
        facts({"files": f"{len(report.files):,}", "read": human_bytes(read_bytes), "verdict": verdict})
    )
    print_parts(*parts)

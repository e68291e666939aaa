"""Output of ``shardkeep merge``, and of an error about sources that differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table

from shardkeep.cli.output.console import facts, listing, print_parts, size_text
from shardkeep.errors import one_line
from shardkeep.hdf5.merge.plan import left_out_lines
from shardkeep.quantities import counted

if TYPE_CHECKING:
    from shardkeep.hdf5 import MergeReport

__all__ = ["print_merge", "schema_table"]

_SHOWN_NAMES = 12
_SHOWN_RANKS = 8


def print_merge(report: MergeReport) -> None:
    """Print the report of `shardkeep.hdf5.merge`."""
    files = counted(len(report.sources), "file")
    table = listing("dataset", "rows", "how", right=["rows"])
    for name, rows in report.rows.items():
        table.add_row(one_line(name), f"{rows:,}", one_line(report.ways.get(name, "")))
    compared, rows = sum(report.compared.values()), sum(report.rows.values())
    parts: list[RenderableType] = [
        facts(
            {
                "merged": f"{files} into {one_line(report.output)}",
                "size": size_text(report.bytes),
                "compared": f"{compared:,} of {rows:,} rows, by value",
                "took": f"{report.seconds:.1f} s",
            }
        ),
        table,
    ]
    parts += map(one_line, left_out_lines(report.dropped_attributes, report.left_out))
    print_parts(*parts)


def schema_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Return the table of a `SchemaError`: each variant of a dataset or attribute and its files."""
    table = listing("name", "has", "files", "which", right=["files"])
    names = list(dict.fromkeys(row["name"] for row in rows))
    shown = set(names[:_SHOWN_NAMES])
    for row in rows:
        if row["name"] in shown:
            table.add_row(one_line(row["name"]), one_line(row["has"]), f"{row['files']:,}", _which(row))
    if len(names) > len(shown):
        table.add_row(f"and {len(names) - len(shown):,} more")
    return table


def _which(row: Mapping[str, Any]) -> str:
    """Return the ranks, or the first files, of a row of the table."""
    ranks = row["ranks"]
    if ranks:
        more = ", …" if len(ranks) > _SHOWN_RANKS else ""
        return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:_SHOWN_RANKS]))}{more}"
    return ", ".join(one_line(path) for path in row["first"]) + (
        ", …" if row["files"] > len(row["first"]) else ""
    )

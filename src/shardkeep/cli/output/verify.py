"""Output of ``shardkeep verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardkeep.cli.output.console import facts, listing, print_parts
from shardkeep.cli.output.text import counted, human_bytes, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardkeep.jobs import VerifyReport

__all__ = ["print_verify"]

_SHOWN_FILES = 40


def print_verify(report: VerifyReport) -> None:
    """Print the report of `verify`: every file with findings, and some of the others."""
    bad = [one for one in report.files if one.findings]
    shown = bad + [one for one in report.files if not one.findings][: max(0, _SHOWN_FILES - len(bad))]
    right = ["size", "records or rows"]
    table = listing("file", "kind", "size", "records or rows", "verdict", right=right)
    for one in report.files:
        if one in shown:
            size = "" if one.kind == "run" else human_bytes(one.file_bytes)
            items = counted(one.items, "commit") if one.kind == "run" else f"{one.items:,}"
            table.add_row(printable(one.path), one.kind, size, items, "DAMAGED" if one.findings else "ok")
    parts: list[RenderableType] = [table]
    if len(shown) < len(report.files):
        parts.append(f"and {len(report.files) - len(shown):,} more without findings")
    found = [(one.path, text) for one in bad for text in one.findings]
    # Most messages name the file.
    lines = [printable(text if path in text else f"{path}: {text}") for path, text in found]
    if lines:
        parts.append("\n".join(lines))
    read_bytes = sum(one.file_bytes for one in report.files)
    verdict = "all files are intact" if report.ok else f"{len(bad):,} with findings"
    parts.append(
        facts({"files": f"{len(report.files):,}", "read": human_bytes(read_bytes), "verdict": verdict})
    )
    print_parts(*parts)

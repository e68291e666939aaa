"""Output of ``shardkeep bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from shardkeep.cli.output.console import facts, listing, print_parts
from shardkeep.errors import one_line
from shardkeep.quantities import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardkeep.diagnosis import StorageReport

__all__ = ["print_bench"]


def print_bench(report: StorageReport) -> None:
    """Print the trials, the uses and settings that follow, and the verdict."""
    heads = {
        False: "between processes of this host",
        True: f"with the second host {one_line(report.second_host or '')}",
    }
    parts: list[RenderableType] = []
    for between_hosts, head in heads.items():
        rows = {one.name: one.value for one in report.trials if one.between_hosts == between_hosts}
        if rows:
            parts.append(Group(Text(head, style="bold"), facts(rows)))
    uses = listing("verdict", "use", "functions")
    for use in report.uses:
        uses.add_row("safe" if use.is_safe else "NOT SAFE", use.name, use.functions)
    parts.append(uses)
    reasons = dict.fromkeys(f"not safe: {one_line(use.reason)}" for use in report.uses if not use.is_safe)
    if reasons:
        parts.append("\n".join(reasons))
    if report.settings:
        parts.append(Group(Text("settings", style="bold"), *(Text(one_line(one)) for one in report.settings)))
    unsafe = sum(not one.is_safe for one in report.uses)
    rows = {
        "storage": one_line(f"{report.storage}: {report.file_system}"),
        "verdict": f"{counted(unsafe, 'use')} not safe" if unsafe else "safe for all uses",
    }
    print_parts(*parts, facts(rows))

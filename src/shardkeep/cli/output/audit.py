"""Output of ``shardkeep audit``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardkeep.cli.output.console import listing, print_parts
from shardkeep.errors import one_line
from shardkeep.quantities import counted, listed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardkeep.plan import AuditReport

__all__ = ["print_audit"]

_SHOWN_RECORDS = 8


def print_audit(report: AuditReport) -> None:
    """Print the report of `shardkeep.plan.audit`."""
    counts = ["records", "delivered", "lost", "repeated", "dropped"]
    some_skipped = any(epoch.skipped for epoch in report.epochs)
    counts += ["skipped"] * some_skipped
    table = listing("epoch", *counts, "verdict", right=["epoch", *counts])
    findings: list[str] = []
    for epoch in report.epochs:
        verdict = "exactly once" if epoch.ok else "not finished" if epoch.under_way else "FAILED"
        ranges = (epoch.lost.records, epoch.repeated.records, epoch.dropped.records)
        numbers = [epoch.epoch, epoch.records, epoch.delivered, *ranges]
        numbers += [len(epoch.skipped)] * some_skipped
        table.add_row(*(f"{number:,}" for number in numbers), verdict)
        for what, names, count in (
            ("lost", epoch.lost_names, epoch.lost.records),
            ("repeated", epoch.repeated_names, epoch.repeated.records),
            ("skipped as damaged", epoch.skipped[:_SHOWN_RECORDS], len(epoch.skipped)),
            ("repaired", epoch.repaired[:_SHOWN_RECORDS], len(epoch.repaired)),
        ):
            if names:
                findings.append(f"epoch {epoch.epoch} {what}: {listed(names, count)}")
        findings += [f"epoch {epoch.epoch}: {problem}" for problem in epoch.problems]
    findings += report.problems
    verdict = "proved: every record was used exactly once" if report.ok else "NOT proved"
    parts: list[RenderableType] = [table] if report.epochs else []
    if findings:
        parts.append("\n".join(map(one_line, findings)))
    print_parts(*parts, f"{verdict} ({counted(report.receipts, 'receipt')})")

"""Output of ``shardkeep verify``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group

from shardkeep.cli.output.console import facts, listing, one_line_text, print_parts
from shardkeep.errors import one_line
from shardkeep.quantities import counted, human_bytes, listed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardkeep.jobs import VerifiedFile, VerifyReport

__all__ = ["print_verify"]

_SHOWN_FILES = 40
_SHOWN_NAMES = 5
_SHOWN_NOTES = 20
_UNKNOWN = ("binary data", "zero bytes", "damaged")
_VERDICTS = {
    "empty": "EMPTY",
    "wrong-kind": "NOT DATA",
    "unreadable": "UNREADABLE",
    "unsupported": "NOT READABLE HERE",
    "missing": "MISSING",
    "locked": "LOCKED",
    "incomplete-set": "INCOMPLETE",
    "incomplete-run": "INCOMPLETE",
    "mixed-sets": "MIXED",
}


def print_verify(report: VerifyReport) -> None:
    """Print the report of `verify`: every file with findings, and some of the others."""
    bad = [one for one in report.files if one.findings]
    shown = {id(one) for one in [*bad, *(one for one in report.files if not one.findings)][:_SHOWN_FILES]}
    right = ["size", "records or rows"]
    table = listing("file", "kind", "size", "records or rows", "verdict", right=right)
    for one in report.files:
        if one.findings or id(one) in shown:
            size = "" if one.kind in ("run", "set") else human_bytes(one.file_bytes)
            items = counted(one.items, "commit") if one.kind == "run" else f"{one.items:,}"
            table.add_row(one_line(one.path), one.kind, size, items, _verdict(one))
    parts: list[RenderableType] = [table]
    hidden = len(report.files) - max(len(shown), len(bad))
    if hidden:
        parts.append(f"and {hidden:,} more without findings")
    if bad:
        parts.append(Group(*(line for one in bad for line in _lines(one))))
    notes = [f"{one.path}: {text}" for one in report.files for text in one.notes]
    if notes:
        more = [f"and {len(notes) - _SHOWN_NOTES:,} more notes"] if len(notes) > _SHOWN_NOTES else []
        parts.append("\n".join([*(f"note: {one_line(text)}" for text in notes[:_SHOWN_NOTES]), *more]))
    read_bytes = sum(one.file_bytes for one in report.files)
    verdict = "all files are intact" if report.ok else f"{len(bad):,} with findings"
    rows = {"files": f"{len(report.files):,}", "read": human_bytes(read_bytes)}
    if report.skipped:
        rows["skipped"] = _skipped(report)
    parts.append(facts(rows | {"verdict": verdict}))
    print_parts(*parts)


def _verdict(one: VerifiedFile) -> str:
    return _VERDICTS.get(one.findings[0].kind, "DAMAGED") if one.findings else "ok"


def _lines(one: VerifiedFile) -> list[RenderableType]:
    # Most messages name the file.
    texts = [finding.message for finding in one.findings]
    names = one.path, one_line(one.path)
    lines = [
        one_line(text if any(name in text for name in names) else f"{one.path}: {text}") for text in texts
    ]
    commands = dict.fromkeys(finding.next for finding in one.findings if finding.next)
    return [*lines, *(one_line_text(f"  continue with: {one_line(command)}") for command in commands)]


def _skipped(report: VerifyReport) -> str:
    kinds = report.skipped_kinds
    text = f"{counted(len(report.skipped), 'file')}, of a kind that is not verified: "
    text += ", ".join(f"{count:,} × {one_line(kind)}" for kind, count in kinds.items())
    unknown = [one.path for one in report.skipped if one.described.startswith(_UNKNOWN)]
    if unknown:
        text += f"; of unknown content: {listed(map(one_line, unknown[:_SHOWN_NAMES]), len(unknown))}"
    return text

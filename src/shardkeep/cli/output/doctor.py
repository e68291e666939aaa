"""Output of ``shardkeep doctor``."""

from __future__ import annotations

import shlex
from collections import Counter
from typing import TYPE_CHECKING

from rich.text import Text

from shardkeep.cli.output.console import facts, print_parts
from shardkeep.cli.output.text import counted, printable
from shardkeep.html_page import page, text_table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardkeep.diagnosis import DoctorReport, Problem

__all__ = ["doctor_page", "print_doctor"]

_COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold"}
_SHOWN_PATHS = 3


def print_doctor(report: DoctorReport, *, show_all: bool = False) -> None:
    """Print the problems, then what was checked, the verdict and the next command.

    Parameters
    ----------
    report : DoctorReport
    show_all : bool
        Print notes and facts, too.
    """
    parts: list[RenderableType] = []
    if show_all:
        names = {f"{one.check}: {one.name}": one.value for one in report.facts}
        parts.append(facts({printable(name): printable(value) for name, value in names.items()}))
    parts += [_problem(one) for one in report.problems if show_all or one.severity != "note"]
    notes = sum(one.severity == "note" for one in report.problems)
    hidden = f" ({counted(notes, 'note')} with --all)" if notes and not show_all else ""
    rows = {
        "checked": _checked(report),
        "verdict": f"{_verdict(report)}{hidden}",
        "next": _next(report),
    }
    print_parts(*parts, facts(rows))


def _problem(one: Problem) -> RenderableType:
    head = Text(f"{one.severity}  ", style=_COLOURS[one.severity])
    head.append(one.check if one.path is None else f"{one.check}: {printable(one.path)}", style="bold")
    lines = [printable(one.evidence), f"fix: {printable(one.fix)}"]
    if one.command is not None:
        lines.append(f"$ {printable(one.command)}")
    return Text("\n").join([head, *(Text(f"{line}") for line in lines)])


def _checked(report: DoctorReport) -> str:
    ranks = counted(report.ranks, "rank")
    if report.ranks_here != report.ranks:
        ranks += f", {report.ranks_here:,} of them here"
    paths = f" and {counted(len(report.paths), 'path')}" if report.paths else ""
    return f"this machine{paths} for {ranks}: {counted(len(report.facts), 'fact')} in {report.seconds:.1f} s"


def _verdict(report: DoctorReport) -> str:
    counts = Counter(str(one.severity) for one in report.problems)
    return (
        ", ".join(counted(counts[name], name) for name in ("error", "warning") if counts[name]) or "healthy"
    )


def _next(report: DoctorReport) -> str:
    if not report.paths:
        return "shardkeep doctor PATHS --world RANKS, for the files of a job"
    if report.ok:
        names = " ".join(map(shlex.quote, report.paths[:_SHOWN_PATHS]))
        more = " …" if len(report.paths) > _SHOWN_PATHS else ""
        return f"shardkeep verify {printable(names)}{more}, to check every record"
    return "correct the first problem, and run this command again"


def doctor_page(report: DoctorReport) -> str:
    """Return the report as a page of HTML."""
    problems = [
        (one.severity, one.check, one.path or "", one.evidence, one.fix, one.command or "")
        for one in report.problems
    ]
    parts = [f'<p class="lead">Checked: {_checked(report)}.</p>']
    if problems:
        parts += ["<h2>Problems</h2>", text_table(_HEAD, problems)]
    parts += [
        "<h2>Facts</h2>",
        text_table(("Check", "Name", "Value"), ((f.check, f.name, f.value) for f in report.facts)),
    ]
    return page("Shardkeep doctor", _verdict(report), "\n".join(parts), good=report.ok)


_HEAD = ("Severity", "Check", "Path", "Evidence", "Fix", "Command")

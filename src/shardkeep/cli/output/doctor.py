"""Output of ``shardkeep doctor``."""

from __future__ import annotations

from collections import Counter
from html import escape
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from shardkeep._paths_in_messages import as_argument
from shardkeep.cli.output.console import facts, one_line_text, print_parts
from shardkeep.errors import one_line
from shardkeep.html_page import page, text_table
from shardkeep.quantities import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardkeep.diagnosis import DoctorReport, Problem

__all__ = ["doctor_page", "print_doctor"]

_COLOURS = {"error": "bold red", "warning": "bold yellow", "note": "bold"}
_SHOWN_PATHS = 3
_MOST_PATHS = 100


def print_doctor(report: DoctorReport, *, show_all: bool = False) -> None:
    """Print the problems, then what was checked, the verdict and the next command.

    Parameters
    ----------
    report : DoctorReport
    show_all : bool
        Print notes and facts, too.
    """
    parts: list[RenderableType] = []
    for check, named in groupby(report.facts if show_all else (), key=attrgetter("check")):
        rows = {one_line(one.name): one_line(one.value) for one in named}
        parts.append(Group(Text(check, style="bold"), facts(rows)))
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
    head.append(one.check if one.path is None else f"{one.check}: {one_line(one.path)}", style="bold")
    lines = [one_line(one.evidence), f"fix: {one_line(one.fix)}"]
    if one.command is not None:
        return Group(head, *lines, one_line_text(f"run: {one_line(one.command)}"))
    return Group(head, *lines)


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
        names = " ".join(map(as_argument, report.paths[:_SHOWN_PATHS]))
        more = " …" if len(report.paths) > _SHOWN_PATHS else ""
        return f"shardkeep verify {one_line(names)}{more}, to check every record"
    return "correct the first problem, and run this command again"


def doctor_page(report: DoctorReport) -> str:
    """Return the report as a page of HTML."""
    parts = [f'<p class="lead">Checked: {_html(_checked(report))}.</p>']
    if report.paths:
        parts.append(f"<p>{_html(' '.join(report.paths[:_MOST_PATHS]))}</p>")
    parts += [_problem_html(one) for one in report.problems]
    for check, named in groupby(report.facts, key=attrgetter("check")):
        rows = ((one_line(one.name), one_line(one.value)) for one in named)
        parts += [f"<h2>{_html(check[:1].upper() + check[1:])}</h2>", text_table((), rows)]
    return page("Shardkeep doctor", _verdict(report), "\n".join(parts), good=report.ok, rules=_RULES)


def _problem_html(one: Problem) -> str:
    where = "" if one.path is None else f" <code>{_html(one.path)}</code>"
    command = "" if one.command is None else f"<pre>{_html(one.command)}</pre>\n"
    return (
        f'<section class="problem {one.severity}">\n<h3>{one.severity}: {_html(one.check)}{where}</h3>\n'
        f"<p>{_html(one.evidence)}</p>\n<p><b>Fix:</b> {_html(one.fix)}</p>\n{command}</section>"
    )


def _html(text: str) -> str:
    return escape(one_line(text))


_RULES = """.problem {
  margin:18px 0; padding:4px 16px 8px; border-left:4px solid var(--quiet); background:var(--panel);
}
.problem.error { border-color:var(--bad); }
.problem.warning { border-color:#b08800; }
.problem h3 { font-size:16px; margin:8px 0; }
.problem p { margin:6px 0; }
.problem pre { background:var(--paper); margin:8px 0; white-space:pre-wrap; }
main { overflow-wrap:anywhere; }
th { white-space:normal; width:38%; font-weight:500; }
"""

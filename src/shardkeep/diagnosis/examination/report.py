"""Report of an examination of a machine and of files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from shardkeep._summary import summary, summary_html

__all__ = ["DoctorReport", "Fact", "Problem", "Severity"]

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Problem:
    """One condition that makes a training job fail, lose data or wait.

    Attributes
    ----------
    severity : {"error", "warning", "note"}
        "error": the job will fail or lose data. "warning": it may. "note": good to know.
    check : str
        Name of the check, such as "descriptors".
    evidence : str
        One line: what was measured, with its values.
    fix : str
        One line: what to do about it on this machine.
    command : str or None
        The command that does it, or that shows more.
    path : str or None
        The file or folder.
    """

    severity: Severity
    check: str
    evidence: str
    fix: str
    command: str | None = None
    path: str | None = None

    __repr__ = summary


@dataclass(frozen=True)
class Fact:
    """A condition that was measured: name of the check, a label, and the value in one line."""

    check: str
    name: str
    value: str

    __repr__ = summary


@dataclass(frozen=True)
class DoctorReport:
    """Report of `shardkeep.doctor`.

    Attributes
    ----------
    problems : tuple of Problem
        The most severe first.
    facts : tuple of Fact
        All that was measured, in the order of the checks.
    checks : tuple of str
        Names of the checks that were made.
    paths : tuple of str
        The files and folders that were named, patterns replaced by their matches.
    ranks, ranks_here : int
        Ranks of the job, and those of them that run on this machine.
    seconds : float
        Duration of the examination.
    """

    problems: tuple[Problem, ...]
    facts: tuple[Fact, ...]
    checks: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    ranks: int = 1
    ranks_here: int = 1
    seconds: float = 0.0

    __repr__ = summary
    _repr_html_ = summary_html

    @property
    def ok(self) -> bool:
        """True if there is neither an error nor a warning."""
        return all(one.severity == "note" for one in self.problems)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as types that JSON supports."""
        return {"ok": self.ok, **asdict(self)}

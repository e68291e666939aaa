"""Output of ``shardkeep explain``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from shardkeep.cli.output.console import facts, print_parts
from shardkeep.errors import one_line
from shardkeep.quantities import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from shardkeep.diagnosis import Diagnosis

__all__ = ["print_diagnoses"]

_LONGEST_EVIDENCE = 200


def print_diagnoses(found: Sequence[Diagnosis]) -> None:
    """Print the result of `shardkeep.diagnosis.explain`."""
    parts: list[RenderableType] = []
    for one in found:
        parts.append(Group(Text(one.title, style="bold"), facts(_rows(one))))
    print_parts(*parts or ["no known cause in this text"])


def _rows(one: Diagnosis) -> dict[str, str]:
    evidence = one.evidence
    if len(evidence) > _LONGEST_EVIDENCE:
        evidence = f"{evidence[:_LONGEST_EVIDENCE]}…"
    seen = f"line {one.line:,}" + (f" and {counted(one.count - 1, 'more line')}" if one.count > 1 else "")
    rows = {
        "error": f"{evidence} ({seen})",
        "cause": f"{'follows from another error' if one.consequence else one.certainty}: {one.cause}",
        "which": one.apart,
        "fix": one.fix,
        "here": one.here,
        "found": "\n".join(f"{one_line(file.path)}: {one_line(file.found)}" for file in one.paths),
        "prove": one.prove,
        "source": ", ".join(one.sources),
    }
    return {name: text for name, text in rows.items() if text}

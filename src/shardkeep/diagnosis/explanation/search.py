"""Search of a log for errors whose cause is known."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field

from shardkeep.diagnosis.explanation.diagnosis import Diagnosis
from shardkeep.diagnosis.explanation.knowledge import Entry, Explanation, entries, texts_to_match
from shardkeep.diagnosis.explanation.log import Log
from shardkeep.diagnosis.explanation.machine import Facts
from shardkeep.diagnosis.explanation.paths import existing_paths, inspect
from shardkeep.errors import one_line

__all__ = ["explain"]

_MOST_LINES = 1_000


def explain(text: str) -> list[Diagnosis]:
    """Return the errors of a log or traceback whose cause is known.

    The knowledge base covers errors of TensorFlow, PyTorch, HDF5, JAX, Ray, Dask, MPI, file systems, object
    stores and limits of processes, as far as files are involved. Paths near an error that exist on this
    machine are inspected: a damaged file is reported, nothing is changed.

    Parameters
    ----------
    text : str
        The log. Colours are ignored.

    Returns
    -------
    list of Diagnosis
        One item for each cause, with the number of lines that show it: first the causes, in the order of the
        log, then errors that only follow from others. Empty if no cause is known; a cause is never guessed.

    Raises
    ------
    TypeError
        `text` is not a str.

    Examples
    --------
    >>> import shardkeep as sk
    >>> for one in sk.explain("OSError: [Errno 116] Stale file handle: '/mnt/nfs/train.h5'"):
    ...     print(one.certainty, one.title)
    certain The file was deleted or replaced on the file server while it was open
    """
    if not isinstance(text, str):
        raise TypeError(f"text must be a str, not {type(text).__name__}")
    log = Log(text)
    found = sorted(_group(log), key=lambda one: (one.explanation.consequence, one.lines[0]))
    return [_diagnose(log, one) for one in found]


@dataclass(frozen=True)
class _Found:
    entry: Entry
    explanation: Explanation
    lines: list[int] = field(default_factory=list)


def _group(log: Log) -> Iterable[_Found]:
    """Return each explanation with the lines that it explains, in their order."""
    groups: dict[Explanation, _Found] = {}
    for line in log.lines_with(texts_to_match(), _MOST_LINES):
        best = _best_match(log, line)
        if best is not None:
            groups.setdefault(best[1], _Found(*best)).lines.append(line)
    return groups.values()


def _best_match(log: Log, number: int) -> tuple[Entry, Explanation] | None:
    """Return the entry with the longest text in a line whose conditions hold, and its explanation."""
    line = log.line(number)
    candidates = [entry for entry in entries() if entry.longest_match(line)]
    context = log.context(number)
    for entry in sorted(candidates, key=lambda one: one.longest_match(line), reverse=True):
        explanation = entry.explanation_for(line, context)
        if explanation is not None:
            return entry, explanation
    return None


def _diagnose(log: Log, found: _Found) -> Diagnosis:
    first = found.lines[0]
    evidence = log.line(first)
    paths = existing_paths(evidence, log.context(first))
    facts = Facts(paths[0] if paths else None)
    texts = asdict(found.explanation)
    texts.update({name: texts[name].format_map(facts) for name in ("cause", "fix", "here", "apart", "prove")})
    return Diagnosis(
        **texts,
        name=found.entry.name,
        line=first + 1,
        evidence=one_line(evidence.strip()),
        count=len(found.lines),
        paths=tuple(map(inspect, paths)),
    )

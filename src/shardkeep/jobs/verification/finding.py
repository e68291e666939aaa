"""One fault that a verification found, in the form of its report."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Literal

from shardkeep._paths_in_messages import as_argument, repair_command, shown
from shardkeep._summary import summary
from shardkeep.errors import (
    CorruptDataError,
    FormatError,
    LockError,
    MissingExtraError,
    NotFoundError,
    SchemaError,
    ShardkeepError,
    TruncatedFileError,
    one_line,
)

__all__ = ["Finding", "FindingKind", "finding_of", "kind_of", "with_next"]

FindingKind = Literal[
    "damage",
    "truncated",
    "empty",
    "replaced",
    "wrong-kind",
    "unreadable",
    "unsupported",
    "missing",
    "locked",
    "incomplete-set",
    "mixed-sets",
    "incomplete-run",
]


@dataclass(frozen=True)
class Finding:
    """One fault of a file, a set of shards or a run.

    Attributes
    ----------
    kind : str
        "damage": bytes differ from those that were written. "truncated": the file ends too early. "empty": it
        has no bytes. "replaced": by its name or its siblings it should be a data file, but it holds something
        else. "wrong-kind": a file that was passed is not a data file. "unreadable": it cannot be opened or
        read here. "unsupported": a part cannot be read here, since a filter is not installed; whether it is
        damaged is not known. "missing": it, or the target of a link, does not exist. "locked": another
        process is writing it.
        "incomplete-set", "mixed-sets": shards ``-00003-of-00008`` are missing, or are of sets of different
        sizes. "incomplete-run": commits of a run are missing.
    message : str
        One line: the fault, its location and advice.
    path : str
        The file or folder; for a set of shards its pattern.
    record : int or None
        Number of the damaged record; damaged bytes before it count as the records that a `Loader` with
        ``on_corrupt="skip"`` makes of them.
    offset_bytes : int or None
        Offset of its first byte; None in a compressed file.
    bytes : int or None
        Size of the damaged record, or of the hole that replaces records.
    next : str or None
        The command to continue with, if there is one.
    """

    kind: FindingKind
    message: str
    path: str
    record: int | None = None
    offset_bytes: int | None = None
    bytes: int | None = None
    next: str | None = None

    __repr__ = summary

    def __str__(self) -> str:
        return self.message


def kind_of(error: Exception) -> FindingKind:
    """Return the kind of the finding that an error is."""
    kinds: dict[type[Exception], FindingKind] = {
        TruncatedFileError: "truncated",
        CorruptDataError: "damage",
        FormatError: "replaced",
        LockError: "locked",
        MissingExtraError: "unsupported",
        SchemaError: "unsupported",
        NotFoundError: "missing",
    }
    return next((kind for one, kind in kinds.items() if isinstance(error, one)), "unreadable")


def finding_of(error: Exception, path: str) -> Finding:
    """Return the finding that an error is."""
    text = str(error) if isinstance(error, ShardkeepError) else getattr(error, "strerror", None) or str(error)
    finding = Finding(
        kind_of(error),
        text if any(name in text for name in (path, shown(path), one_line(path))) else f"{path}: {text}",
        path,
        record=getattr(error, "record", None),
        offset_bytes=getattr(error, "offset_bytes", None),
    )
    return with_next(finding)


def with_next(finding: Finding) -> Finding:
    """Return a finding with the command that its kind or its message suggests."""
    named = re.search(r"run `([^`]+)`", finding.message)
    command = named[1] if named else None
    if finding.kind in ("damage", "truncated") and command is None:
        command = repair_command(finding.path)
    elif finding.kind == "locked":
        command = f"shardkeep verify {as_argument(finding.path)}"
    elif finding.kind in ("unreadable", "missing") and command is None:
        command = f"ls -ld {as_argument(finding.path)}"
    return replace(finding, next=command)

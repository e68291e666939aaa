"""Paths in a log that exist on this machine."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator

from shardkeep.diagnosis.explanation.diagnosis import InspectedPath
from shardkeep.errors import ShardkeepError
from shardkeep.files.kinds.kind import FileKind, identify
from shardkeep.jobs.verify import verify

__all__ = ["existing_paths", "inspect"]

_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"|<(/[^>\n]+)>")
_BARE = re.compile(r"(?<![\w./~-])(?:\.{0,2}/)?[\w.@%+~-]+(?:/[\w.@%+=~-]+)+|(?<![\w./])/[\w.@%+=~-]+")
# Files of the program that is shown in a traceback, not of its data.
_CODE = re.compile(r'^\s*File "[^"]+", line \d+', re.MULTILINE)
_CODE_ENDS = (".py", ".pyx", ".so", ".c", ".cc", ".cpp", ".h", ".rs")
_MOST_PATHS = 3
# Larger files take longer to read than a person wants to wait; `shardkeep verify` is for them.
_VERIFIED_BYTES = 64 << 20


def existing_paths(*texts: str) -> list[str]:
    """Return paths of files and folders that exist here, in the order of the texts; at most three."""
    found: list[str] = []
    for text in texts:
        for path in _candidates(_CODE.sub("", text)):
            if path not in found and not _is_program(path) and os.path.exists(path):
                found.append(path)
    return found[:_MOST_PATHS]


def _is_program(path: str) -> bool:
    return path.endswith(_CODE_ENDS) or (os.path.isfile(path) and os.access(path, os.X_OK))


def _candidates(text: str) -> Iterator[str]:
    for quoted in _QUOTED.finditer(text):
        path = next(filter(None, quoted.groups()))
        # A bare word in quotation marks is rather a name of something else.
        if "/" in path or "." in path:
            yield path
    for bare in _BARE.finditer(text):
        yield bare[0].rstrip(".:,")


def inspect(path: str) -> InspectedPath:
    """Return what a path is: kind, size, age, and the first damage of a file that is small enough."""
    try:
        kind, status = identify(path), os.stat(path)
    except (OSError, ShardkeepError) as error:
        return InspectedPath(path, f"cannot be read: {error}")
    if kind.name == "folder":
        return InspectedPath(path, kind.described)
    age_s = max(0.0, time.time() - status.st_mtime)
    parts = [
        f"{kind.described}, {status.st_size:,} bytes",
        f"changed {_age(age_s)} ago",
        *_damage(path, kind),
    ]
    return InspectedPath(path, "; ".join(parts))


def _damage(path: str, kind: FileKind) -> Iterator[str]:
    if kind.name not in ("tfrecord", "hdf5") and not kind.may_be_damaged_records:
        return
    if os.path.getsize(path) > _VERIFIED_BYTES:
        yield "too large to be verified here"
        return
    (file,) = verify(path).files
    yield file.findings[0].message if file.findings else "intact"


def _age(seconds: float) -> str:
    for unit, length_s in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {unit}"
    return f"{seconds:.0f} seconds"

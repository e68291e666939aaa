"""End of the commits of one rank, in the file ``rank-00003/end.json``.

Ranks that do not train in step end at different steps. The end names the record of the newest commit by its
checksum, so a later commit and a rollback make it invalid.
"""

from __future__ import annotations

import contextlib
import json
import os

from shardkeep.files.durable import durably, sync_folder
from shardkeep.files.publish import publish

__all__ = ["END_NAME", "has_end", "is_ended", "remove_end", "write_end"]

END_NAME = "end.json"


def write_end(folder: str, record_crc32c: str | None, *, durable: bool) -> None:
    """Record that the commit with this checksum is the last one of its rank.

    Raises
    ------
    DurabilityError
        The file could not be written.
    """
    with publish(_path(folder), exists="replace", durable=durable) as file:
        file.write(json.dumps({"format": 1, "last_commit": record_crc32c}).encode())


def remove_end(folder: str, *, durable: bool) -> None:
    """Remove the end, before a rank continues; errors as `write_end`."""
    with durably("continue", folder), contextlib.suppress(FileNotFoundError):
        os.unlink(_path(folder))
        if durable:
            sync_folder(folder)


def has_end(folder: str) -> bool:
    """Return True if the rank has an end, also one that a rollback has made invalid."""
    return os.path.exists(_path(folder))


def is_ended(folder: str, record_crc32c: str | None) -> bool:
    """Return True if the commit with this checksum is the last one of its rank."""
    try:
        with open(_path(folder), encoding="utf-8") as file:
            end = json.load(file)
    except (OSError, ValueError):
        return False
    return record_crc32c is not None and isinstance(end, dict) and end.get("last_commit") == record_crc32c


def _path(folder: str) -> str:
    return os.path.join(folder, END_NAME)

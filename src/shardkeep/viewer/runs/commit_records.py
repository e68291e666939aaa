"""Commit records of sealed segments, which never change, as the child process read them."""

from __future__ import annotations

import time

from shardkeep.hdf5.segments.commit_record import CommitRecord, parse_record
from shardkeep.viewer.hdf5.processes import ask
from shardkeep.viewer.kept import Version, version_of
from shardkeep.viewer.locations import Location

__all__ = ["record_at"]

# Texts of some kilobytes: the records themselves would take five times as much.
_MOST_KNOWN = 16_384


def record_at(segment: Location, deadline_s: float | None = None) -> CommitRecord | None:
    """Return the commit record of a segment.

    Parameters
    ----------
    segment : Location
    deadline_s : float, optional
        Moment of `time.monotonic` after which no segment is opened.

    Returns
    -------
    CommitRecord or None
        None if the file is not a segment, or there was no time to read it.

    Raises
    ------
    CorruptDataError
        The file is damaged.
    ShardkeepError, OSError
        It cannot be read.
    """
    key = version_of(segment.path)
    try:
        text = _known[key]
    except KeyError:
        if deadline_s is not None and time.monotonic() > deadline_s:
            return None
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        text = _known[key] = ask(segment, "/", "commit")["record"]
    return None if text is None else parse_record(text.encode(), segment.path)


_known: dict[Version, str | None] = {}

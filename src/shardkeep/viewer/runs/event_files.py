"""Event files of a folder, read once and then only where they have grown.

A thread reads them, since a file of 100 MB takes seconds; a page shows what has been read.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

from shardkeep import _core
from shardkeep.tfrecord.events.message import EventParser
from shardkeep.tfrecord.follow.live_frames import LiveFrames
from shardkeep.viewer.kept import Background, Recent
from shardkeep.viewer.locations import Location
from shardkeep.viewer.runs.series import MOST_PARTS, Series

__all__ = ["EventFile", "EventFiles", "event_paths", "is_event_file", "recent_files"]

_MOST_ENTRIES = 20_000
_MOST_FILES = 1000
_MOST_TAGS = 2000
# Of a folder: more curves have fewer parts each, 16 MB together.
_MOST_SERIES = 20_000
_ALL_PARTS = 500_000
_WAIT_S = 0.15
_TURN = 256


def is_event_file(name: str) -> bool:
    """Return whether a name is that of an event file."""
    return "tfevents" in name


def event_paths(location: Location) -> list[str]:
    """Return the event files at or below a location, without those to which links lead."""
    if not location.is_folder:
        return [location.path]
    return sorted(path for path in _walk(location.path) if is_event_file(os.path.basename(path)))[
        :_MOST_FILES
    ]


def _walk(folder: str) -> Iterator[str]:
    seen = 0
    for here, folders, names in os.walk(folder):
        folders.sort()
        seen += len(folders) + len(names)
        yield from (os.path.join(here, one) for one in names if not os.path.islink(os.path.join(here, one)))
        if seen > _MOST_ENTRIES:
            return


class EventFile:
    """One event file and what has been read of it.

    Attributes
    ----------
    path : str
    series : dict of str to Series
        By tag.
    read_bytes, size_bytes : int
    problem : str or None
        Description of damage, behind which nothing is read.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._clear()

    def _clear(self) -> None:
        self.series: dict[str, Series] = {}
        self.read_bytes = self.size_bytes = 0
        self.problem: str | None = None
        self._record = 0
        self._inode = 0
        self._parser = EventParser()

    def read(self, most_tags: int = _MOST_TAGS) -> None:
        """Read what was written since the last call; a file that was replaced is read again.

        Parameters
        ----------
        most_tags : int
            Further tags are left out.
        """
        with contextlib.suppress(OSError):
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
            try:
                status = os.fstat(fd)
                if status.st_ino != self._inode or status.st_size < self.read_bytes:
                    self._clear()
                self._inode, self.size_bytes = status.st_ino, status.st_size
                if self.problem is None and self.size_bytes > self.read_bytes:
                    self._read(fd, most_tags)
            finally:
                os.close(fd)

    def _read(self, fd: int, most_tags: int) -> None:
        frames = LiveFrames(fd, offset_bytes=self.read_bytes, record=self._record)
        whole = frames.whole()
        while True:
            if frames.record % _TURN == 0:
                time.sleep(0.0005)  # other requests run now, and not after the 5 ms of the interpreter
            try:
                data = next(whole)
            except StopIteration as end:
                # NULs, or the begin of a record, are what a writer leaves that is still writing.
                if end.value.kind == "damage":
                    self.problem = (
                        f"record {frames.record:,} at byte {frames.offset_bytes:,}: {end.value.what}"
                    )
                return
            try:
                event = self._parser.parse(data)
            except _core.WireError as error:
                self.problem = f"record {frames.record - 1:,} is not an event: {error}"
                return
            finally:
                self.read_bytes, self._record = frames.offset_bytes, frames.record
            for tag, value in event.scalars:
                series = self.series.get(tag)
                if series is None:
                    if len(self.series) >= most_tags:
                        continue
                    series = self.series[tag] = Series()
                series.add(event.step, value)


class EventFiles:
    """The event files of one location.

    Attributes
    ----------
    files : dict of str to EventFile
        By path, in the order of the paths.
    """

    def __init__(self, location: Location) -> None:
        self.location = location
        self.files: dict[str, EventFile] = {}
        self._reading = Background()

    def update(self) -> bool:
        """Read what is new, for at most a fraction of a second; return whether all of it has been read."""
        return self._reading.run(self._read, _WAIT_S)

    def _read(self) -> None:
        self.files = {path: self.files.get(path) or EventFile(path) for path in event_paths(self.location)}
        files = list(self.files.values())
        for file in files:
            count = sum(len(one.series) for one in files)
            file.read(min(_MOST_TAGS, _MOST_SERIES - count + len(file.series)))
        series = [one for file in files for one in file.series.values()]
        for one in series:
            one.limit(max(24, min(MOST_PARTS, _ALL_PARTS // len(series))))


recent_files = Recent(EventFiles, 8)

"""Scalars of TensorBoard event files, without TensorBoard.

An event file is a TFRecord file whose records are `tensorflow.Event` messages, the first of which names the
version of the format. TensorBoard stops reading a file at the first damaged byte, without a message, and it
hides the steps that a restarted run repeated. Here damage is an error or a warning with its offset, and every
logged value is returned.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from shardkeep import _core
from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    FormatError,
    NotFoundError,
    PlanError,
    TruncatedFileError,
)
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.leftovers import find_companion
from shardkeep.files.remote.copies import accepts_urls
from shardkeep.files.user_warning import warn_user
from shardkeep.tfrecord.events.message import Event, EventParser
from shardkeep.tfrecord.follow.live_frames import LiveFrames, Stall
from shardkeep.tfrecord.format.file_kind import with_file_kind
from shardkeep.tfrecord.format.frame import OVERHEAD_BYTES, first_byte_that_is_not_nul
from shardkeep.tfrecord.format.resync import next_frame
from shardkeep.tfrecord.reader import Reader

__all__ = ["read_scalars"]

OnCorrupt = Literal["raise", "skip"] | Callable[[CorruptDataError], object]

# tensorflow/core/util/events_writer.cc: the first event of each file has this and a number.
_VERSION = "brain.Event:"


@accepts_urls("logdir_or_file", folders=True)
def read_scalars(
    logdir_or_file: str | os.PathLike[str],
    *,
    tags: str | Iterable[str] | None = None,
    live: bool = False,
    on_corrupt: OnCorrupt = "raise",
) -> dict[str, npt.NDArray[Any]]:
    """Read the scalars of event files into columns.

    Parameters
    ----------
    logdir_or_file : str or os.PathLike
        An event file, or a folder that is searched, with its sub-folders, for files whose names hold
        "tfevents".
    tags : str or iterable of str, optional
        Only these tags, named exactly.
    live : bool
        True if the run may still be writing: an unfinished record at the end of a file is a clean end.
        (`follow` yields the events themselves as they are written.)
    on_corrupt : "raise", "skip" or function
        Reaction to damage. "skip" continues at the next offset where both checksums of a record match, and
        warns once for each damaged range. A function receives the error of each range, with the number of
        skipped bytes in its message, instead of the warning.

    Returns
    -------
    dict of str to ndarray
        Columns of one length, a row for every value; ``pandas.DataFrame`` accepts it.

        - ``run``: folder of the file below the logdir, "." for the logdir itself (object array of str)
        - ``tag`` (object array of str)
        - ``step`` (int64)
        - ``wall_time``: seconds since the epoch (float64)
        - ``value`` (float64; integers beyond 2^53 are rounded)
        - ``file``: the path (object array of str)

        The files are in the order of their runs and names, which begin with the time of their creation; the
        rows of a file are in the order in which they were logged. Tags without values have no rows.

    Raises
    ------
    CorruptRecordError
        A record is damaged, or is not an event: the message has file, record number and offset.
    TruncatedFileError
        A file ends inside a record, and `live` is False.
    FormatError
        A file is of another kind; an event file has the version ``brain.Event:2`` in its first record.
    NotFoundError
        The path does not exist, or holds no event file.
    PlanError
        `on_corrupt` or `tags` is not valid.

    Warns
    -----
    RuntimeWarning
        With ``on_corrupt="skip"``, for each range that was skipped.

    Notes
    -----
    A value is a scalar if it is a ``simple_value`` (TensorFlow 1, PyTorch, tensorboardX), a tensor of one
    number whose plugin is "scalars" (TensorFlow 2, Keras), or one of rank 0 without a plugin. Histograms,
    images, texts and graphs are skipped.

    A run that was restarted from a checkpoint logs some steps twice, into another file. TensorBoard hides
    the first ones; here both are returned, the earlier first. To keep the last of each::

        frame = pandas.DataFrame(columns).drop_duplicates(["run", "tag", "step"], keep="last")

    Examples
    --------
    >>> import os, tempfile
    >>> from shardkeep.tfrecord import Writer
    >>> logdir = tempfile.mkdtemp()
    >>> first = bytes.fromhex("09 000000000000f03f 1a 0d") + b"brain.Event:2"
    >>> loss = bytes.fromhex("09 0000000000000040 10 05 2a 0d 0a 0b 0a 04") + b"loss"
    >>> loss += bytes.fromhex("15 0000803e")
    >>> with Writer(os.path.join(logdir, "events.out.tfevents.1700000000.host")) as w:
    ...     w.write(first)
    ...     w.write(loss)
    >>> columns = read_scalars(logdir)
    >>> [column.tolist() for column in columns.values()][:5]
    [['.'], ['loss'], [5], [2.0], [0.25]]
    """
    if on_corrupt not in ("raise", "skip") and not callable(on_corrupt):
        raise PlanError(f'on_corrupt={on_corrupt!r} is not valid: use "raise", "skip" or a function')
    root = local_path(logdir_or_file)
    if not (tags is None or isinstance(tags, Iterable)):
        raise PlanError(f"tags must be a str or several in a list, not {tags!r:.60}")
    wanted = None if tags is None else {tags} if isinstance(tags, str) else set(tags)
    columns = _Columns(wanted)
    for run, path in _event_files(root):
        columns.begin(run, path)
        for event in _events(path, live, on_corrupt):
            columns.add(event)
    return columns.finished()


class _Columns:
    """Rows as numbers; a name becomes one string object that all of its rows share."""

    def __init__(self, wanted: set[str] | None) -> None:
        self._wanted = wanted
        self._codes: dict[str, int] = {}
        self._tag, self._step = array("q"), array("q")
        self._wall_time, self._value = array("d"), array("d")
        self._files: list[tuple[str, str]] = []
        self._first_rows: list[int] = []

    def begin(self, run: str, path: str) -> None:
        self._files.append((run, path))
        self._first_rows.append(len(self._value))

    def add(self, event: Event) -> None:
        for tag, value in event.scalars:
            if self._wanted is None or tag in self._wanted:
                self._tag.append(self._codes.setdefault(tag, len(self._codes)))
                self._step.append(event.step)
                self._wall_time.append(event.wall_time)
                self._value.append(value)

    def finished(self) -> dict[str, npt.NDArray[Any]]:
        rows = len(self._value)
        counts = np.diff([*self._first_rows, rows])
        files = np.repeat(np.arange(len(counts)), counts)
        return {
            "run": _strings([run for run, _ in self._files])[files],
            "tag": _strings(list(self._codes))[np.array(self._tag, dtype=np.int64)],
            "step": np.array(self._step, dtype=np.int64),
            "wall_time": np.array(self._wall_time, dtype=np.float64),
            "value": np.array(self._value, dtype=np.float64),
            "file": _strings([path for _, path in self._files])[files],
        }


def _strings(values: list[str]) -> npt.NDArray[np.object_]:
    out = np.empty(len(values), dtype=object)
    out[:] = values
    return out


# -- files ------------------------------------------------------------------------------------------------


def _event_files(root: str) -> list[tuple[str, str]]:
    """Return run and path of each event file, in the order of the runs and names."""
    if not os.path.isdir(root):
        if not os.path.exists(root):
            raise NotFoundError(f"{root}: no such file or folder", path=root)
        return [(".", root)]
    found = []
    seen = set()
    for folder, folders, names in os.walk(root, followlinks=True):
        status = os.stat(folder)
        if (status.st_dev, status.st_ino) in seen:  # a link to a folder that was searched
            folders.clear()
            continue
        seen.add((status.st_dev, status.st_ino))
        folders.sort()
        run = os.path.relpath(folder, root).replace(os.sep, "/")
        found += [
            (run, os.path.join(folder, name))
            for name in sorted(names)
            if "tfevents" in name and find_companion(name) is None
        ]
    if not found:
        raise NotFoundError(f'{root}: no file in this folder has "tfevents" in its name', path=root)
    return sorted(found)


# -- events -----------------------------------------------------------------------------------------------


def _events(path: str, live: bool, on_corrupt: OnCorrupt) -> Iterator[Event]:
    parser = EventParser()
    is_first = True
    for record, offset_bytes, data in _records(path, live, on_corrupt):
        if is_first:
            _check_is_event_file(path, record, data)
            is_first = False
        try:
            event = parser.parse(data)
        except _core.WireError as error:
            message = f"{path}: record {record} at byte {offset_bytes:,} is not a tensorflow.Event: {error}"
            fault = CorruptRecordError(message, path=path, record=record, offset_bytes=offset_bytes)
            if on_corrupt == "raise":
                raise fault from None
            _report(fault, on_corrupt)
        else:
            yield event


def _check_is_event_file(path: str, record: int, data: bytes) -> None:
    """Raise a FormatError unless the first record, or the next if that is damaged, is of an event file."""
    content = _core.record_content(data)
    try:
        is_event = EventParser().parse(data).version.startswith(_VERSION)
    except _core.WireError:
        is_event = False
    if is_event or (record and content == "tensorflow.Event"):
        return
    raise FormatError(
        f"{path}: not an event file: record {record} is {content or 'of no known form'}, and an event file"
        f' begins with a tensorflow.Event of version "{_VERSION}2"; read the records with Reader',
        path=path,
        record=record,
    )


def _records(path: str, live: bool, on_corrupt: OnCorrupt) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, offset and bytes of each record that is whole."""
    compressed = Reader(path).compression is not None  # raises if the file is of another kind
    record = offset_bytes = 0
    try:
        for data in _core.RecordIterator(path, compression="auto"):
            yield record, offset_bytes, data
            record += 1
            offset_bytes += OVERHEAD_BYTES + len(data)
        return
    except CorruptDataError as error:
        if compressed:  # nothing after the damage can be decompressed
            raise
        fault = error
    yield from _records_around_damage(path, fault, live, on_corrupt)


def _records_around_damage(
    path: str, fault: CorruptDataError, live: bool, on_corrupt: OnCorrupt
) -> Iterator[tuple[int, int, bytes]]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        frames = LiveFrames(fd, offset_bytes=fault.offset_bytes or 0, record=fault.record or 0)
        while True:
            whole = frames.whole()
            while True:
                try:
                    data = next(whole)
                except StopIteration as end:
                    stall: Stall = end.value
                    break
                yield frames.record - 1, frames.offset_bytes - OVERHEAD_BYTES - len(data), data
            if stall.kind == "end":
                return
            offset_bytes, record = frames.offset_bytes, frames.record
            following = next_frame(fd, offset_bytes)
            if live and following is None and _is_unfinished(fd, stall):
                return
            kind: type[CorruptDataError] = CorruptRecordError
            what = stall.what
            if stall.kind == "partial":
                if following is None:
                    kind = TruncatedFileError
                else:
                    what = "a record is cut off here, and others were written after it"
            message = f"{path}: record {record} at byte {offset_bytes:,}: {what}"
            if on_corrupt == "raise":
                error = kind(message, path=path, record=record, offset_bytes=offset_bytes)
                raise with_file_kind(error) if isinstance(error, CorruptRecordError) else error
            lost_bytes = (os.fstat(fd).st_size if following is None else following) - offset_bytes
            rest = "none is whole after it" if following is None else f"the next is at byte {following:,}"
            message += f"; {lost_bytes:,} bytes are skipped, {rest}"
            _report(kind(message, path=path, record=record, offset_bytes=offset_bytes), on_corrupt)
            if following is None:
                return
            frames = LiveFrames(fd, offset_bytes=following, record=record + 1)
    finally:
        os.close(fd)


def _is_unfinished(fd: int, stall: Stall) -> bool:
    if stall.kind == "hole":
        return first_byte_that_is_not_nul(fd, stall.later_bytes) is None
    return stall.kind == "partial"


def _report(fault: CorruptDataError, on_corrupt: OnCorrupt) -> None:
    if callable(on_corrupt):
        on_corrupt(fault)
    else:
        warn_user(str(fault))

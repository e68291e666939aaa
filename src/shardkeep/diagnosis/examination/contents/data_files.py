"""Data files among the files of a job, from the first bytes of a limited number of them."""

from __future__ import annotations

import functools
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.contents.listing import Entry, Listing
from shardkeep.diagnosis.examination.contents.open_files import LockFiles, OpenFiles
from shardkeep.diagnosis.examination.contents.wording import named
from shardkeep.diagnosis.examination.report import Fact, Problem
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.errors import NotFoundError
from shardkeep.files.kinds.data_names import DataKind
from shardkeep.files.kinds.kind import FileKind, identify, identify_bytes
from shardkeep.jobs.verification.expectation import Member, expected_kinds
from shardkeep.jobs.verification.inventory import task_of
from shardkeep.quantities import counted

__all__ = ["Contents", "DataFile", "Reads", "check_kinds", "find_data"]

_EMPTY = identify_bytes(b"")
# Files of unknown content are searched for records, which reads more of them.
_MOST_UNKNOWN = 64


class Reads:
    """Limit of the reads of one check, in number and in time.

    Parameters
    ----------
    most : int
        Number of files that may be read.
    subject : Subject
        A quarter of its time may be used.
    """

    def __init__(self, most: int, subject: Subject) -> None:
        self.most = most
        self._left = most
        self._until_s = time.monotonic() + subject.left_s / 4

    def take(self) -> bool:
        """Return True if another file may be read."""
        self._left -= 1
        return self._left >= 0 and time.monotonic() < self._until_s


@dataclass(frozen=True)
class DataFile:
    """A file, the kind that it should have, and the kind of its content.

    Attributes
    ----------
    entry : Entry
    expected : {"tfrecord", "hdf5"} or None
        None for a file that is not data.
    kind : FileKind or None
        None if it was not read.
    siblings : tuple of str
        A key that it shares with files whose names differ in digits only.
    """

    entry: Entry
    expected: DataKind | None
    kind: FileKind | None
    siblings: tuple[str, ...]

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.entry.path

    @property
    def is_events(self) -> bool:
        """True for a TensorBoard event file, which no job reads."""
        return "tfevents" in self.entry.name


@dataclass(frozen=True)
class Contents:
    """What the checks of files have in common: the job, its files, and those of them that hold data."""

    subject: Subject
    listing: Listing
    data: list[DataFile] = field(default_factory=list)
    open_files: OpenFiles = field(default_factory=OpenFiles)
    lock_files: LockFiles = field(default_factory=LockFiles)

    @functools.cached_property
    def shards(self) -> list[DataFile]:
        """TFRecord files that a job reads."""
        return [one for one in self.data if one.expected == "tfrecord" and not one.is_events]


def find_data(listing: Listing, reads: Reads) -> list[DataFile]:
    """Return every file with its kind; those that were not read are like their siblings.

    Parameters
    ----------
    listing : Listing
    reads : Reads
        Of more files, half are the smallest, which a pointer of git-lfs or an error page is among, and the
        others are evenly spread.
    """
    # A pattern matches no hidden file.
    files = [one for one in listing.files if not (one.name.startswith(".") or one.is_unfinished)]
    kinds = {entry.path: _EMPTY for entry in files if entry.size_bytes == 0}
    for entry in _sample([entry for entry in files if entry.size_bytes], reads.most):
        if not reads.take():
            break
        try:
            kinds[entry.path] = identify(entry.path)
        except NotFoundError:
            continue  # removed in the meantime
        except OSError as error:
            listing.failed.append((entry.path, error))
    unknown = itertools.count()
    members = [
        Member(path, kind)
        for path, kind in kinds.items()
        if not kind.may_be_damaged_records or next(unknown) < _MOST_UNKNOWN
    ]
    expected = dict(zip((one.path for one in members), expected_kinds(members), strict=True))
    groups: defaultdict[tuple[str, ...], Counter[DataKind | None]] = defaultdict(Counter)
    for one in members:
        groups[one.siblings][expected[one.path]] += 1
    return [_data_file(entry, kinds.get(entry.path), expected, groups) for entry in files]


def _data_file(
    entry: Entry,
    kind: FileKind | None,
    expected: dict[str, DataKind | None],
    groups: defaultdict[tuple[str, ...], Counter[DataKind | None]],
) -> DataFile:
    siblings = _siblings(entry)
    if entry.path in expected:
        return DataFile(entry, expected[entry.path], kind, siblings)
    known = groups.get(siblings)
    return DataFile(entry, known.most_common(1)[0][0] if known else None, kind, siblings)


def _siblings(entry: Entry) -> tuple[str, ...]:
    return Member(entry.path, _EMPTY).siblings


def _sample(files: Sequence[Entry], most: int) -> Iterable[Entry]:
    if len(files) <= most:
        return files
    groups: defaultdict[tuple[str, ...], list[Entry]] = defaultdict(list)
    for entry in files:
        groups[_siblings(entry)].append(entry)
    samples = [_some(group, max(1, most * len(group) // len(files))) for group in groups.values()]
    in_turn = itertools.chain.from_iterable(itertools.zip_longest(*samples))
    return (entry for entry in in_turn if entry is not None)


def _some(group: list[Entry], count: int) -> list[Entry]:
    group = sorted(group, key=lambda entry: entry.size_bytes)
    small, rest = group[: count // 2], group[count // 2 :]
    spread = count - count // 2
    return small + [rest[number * len(rest) // spread] for number in range(spread)]


def check_kinds(contents: Contents) -> Iterator[Problem | Fact]:
    """Find files in the place of data that hold something else, from their first bytes."""
    found: defaultdict[tuple[str, str], list[DataFile]] = defaultdict(list)
    for one in contents.data:
        if one.kind is None or one.kind.name in ("tfrecord", "hdf5", "empty"):
            continue
        if one.expected is not None or (one.entry.is_named and one.kind.stands_in):
            found[one.entry.folder, one.kind.group].append(one)
    for (folder, group), members in found.items():
        first, kind = members[0], members[0].kind
        assert kind is not None
        finding = task_of(first.path, kind, first.expected).finding
        command = finding.next if finding is not None else None
        if len(members) == 1:
            evidence, path = f"it is {kind.described}", first.path
        else:
            evidence = f"{counted(len(members), 'file')} in the place of data: {group}: "
            evidence, path = evidence + named([one.path for one in members]), folder
        advice = kind.advice or "write or fetch it again"
        yield Problem("error", "content", evidence, advice, command or _verify(first.path), path)
    read = sum(one.kind is not None for one in contents.data)
    for name, label in (("tfrecord", "TFRecord files"), ("hdf5", "HDF5 files")):
        count = sum(one.expected == name for one in contents.data)
        if count:
            yield Fact("content", label, f"{count:,}")
    if contents.data:
        yield Fact("content", "first bytes read", f"of {read:,} of {counted(len(contents.data), 'file')}")


def _verify(path: str) -> str:
    return f"shardkeep verify {as_argument(path)}"

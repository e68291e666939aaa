"""Every file of some paths, with what is to be done with it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from shardkeep.errors import CorruptDataError, NotFoundError
from shardkeep.files.kinds.data_names import DataKind
from shardkeep.files.kinds.kind import FileKind, identify
from shardkeep.files.leftovers import find_companion
from shardkeep.files.paths import size_of
from shardkeep.hdf5.segments.run_folder import list_ranks
from shardkeep.jobs.verification.expectation import Member, expected_kinds
from shardkeep.jobs.verification.finding import Finding, FindingKind, finding_of, with_next
from shardkeep.jobs.verification.report import SkippedFile
from shardkeep.tfrecord.format.file_kind import may_hold_records

__all__ = ["Inventory", "Task", "take_inventory", "task_of"]


@dataclass(frozen=True)
class Task:
    """A file to check, or a path with a finding.

    Attributes
    ----------
    path : str
    expected : {"tfrecord", "hdf5"} or None
        What the file should be.
    kind : FileKind or None
        The kind of its content; None for a path that cannot be read.
    finding : Finding or None
        The reason why it cannot be checked.
    named : bool
        True if the path was passed, False if it was found in a folder.
    size_bytes : int
    """

    path: str
    expected: DataKind | None = None
    kind: FileKind | None = None
    finding: Finding | None = None
    named: bool = False
    size_bytes: int = 0


@dataclass
class Inventory:
    """The files of some paths and folders, each in one of the lists; and the folders of runs."""

    tasks: list[Task] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    runs: list[str] = field(default_factory=list)


def take_inventory(paths: Iterable[str]) -> Inventory:
    """Return every file of some paths, and of the folders among them with their sub-folders.

    Links to folders are not followed, but count as skipped.

    Raises
    ------
    NotFoundError
        A path does not exist.
    """
    found = Inventory()
    files: list[str] = []
    for path in paths:
        if os.path.isdir(path):
            _add_files(found, files, named=True)
            files = []
            for folder, names in _walk(found, path):
                _add_files(found, [os.path.join(folder, name) for name in names], named=False)
        else:
            files.append(path)
    _add_files(found, files, named=True)
    return found


def _walk(found: Inventory, top: str) -> Iterator[tuple[str, list[str]]]:
    def failed(error: OSError) -> None:
        found.tasks.append(Task(error.filename, finding=finding_of(error, error.filename)))

    for folder, folders, names in os.walk(top, onerror=failed):
        folders.sort()
        for name in folders:
            if os.path.islink(os.path.join(folder, name)):
                found.skipped.append(SkippedFile(os.path.join(folder, name), "a link to a folder"))
        try:
            if list_ranks(folder):
                found.runs.append(folder)
        except CorruptDataError:  # a finding of `check_run`
            found.runs.append(folder)
        except OSError:  # removed during the check
            pass
        yield folder, sorted(names)


def _add_files(found: Inventory, paths: list[str], *, named: bool) -> None:
    """Add files of one folder, or files that were passed (`named`), which should all be data files."""
    members: list[Member] = []
    failed: dict[str, OSError] = {}
    for path in paths:
        companion = find_companion(os.path.basename(path))
        if companion is not None:
            found.skipped.append(SkippedFile(path, companion))
            continue
        try:
            members.append(Member(path, identify(path)))
        except NotFoundError as error:
            if named and not os.path.lexists(path):
                raise
            failed[path] = error
        except OSError as error:
            failed[path] = error
    expected = {
        one.path: (one.kind, kind) for one, kind in zip(members, expected_kinds(members), strict=True)
    }
    for path in paths:
        if path in failed:
            _add_failed(found, path, failed[path], named=named)
        elif path in expected:
            kind, wanted = expected[path]
            if wanted is None and named and (kind.name == "empty" or kind.may_be_damaged_records):
                wanted = "tfrecord"
            if wanted is None and not named:
                found.skipped.append(SkippedFile(path, kind.group))
            else:
                found.tasks.append(task_of(path, kind, wanted, named=named))


def _add_failed(found: Inventory, path: str, error: OSError, *, named: bool) -> None:
    if isinstance(error, NotFoundError) and not os.path.islink(path):
        found.skipped.append(SkippedFile(path, "a file that was removed during the check"))
    else:
        found.tasks.append(Task(path, finding=finding_of(error, path), named=named))


def task_of(path: str, kind: FileKind, expected: DataKind | None, *, named: bool = False) -> Task:
    """Return what to do with a file that should be of the kind `expected`; with None it should be data."""
    finding = None
    if kind.name == "empty":
        text = "has no bytes: its writer was killed, or its copy failed; write or fetch it again"
        finding = Finding("empty", f"{path}: {text}", path)
    elif expected is None:
        finding = _foreign(
            "replaced" if kind.stands_in else "wrong-kind", path, "a TFRecord or HDF5 file", kind
        )
    elif expected == "hdf5" and kind.name == "other":
        finding = _foreign(
            "damage" if kind.may_be_damaged_records else "replaced", path, "an HDF5 file", kind
        )
    elif kind.name == "other" and not may_hold_records(kind):
        finding = _foreign("replaced", path, "a TFRecord file", kind)
    elif kind.described.startswith("damaged"):
        finding = _foreign("damage", path, "a TFRecord file", kind)
    return Task(path, expected, kind, finding, named, size_of(path))


def _foreign(what: FindingKind, path: str, expected: str, kind: FileKind) -> Finding:
    advice = f"; {kind.advice}" if kind.advice else ""
    return with_next(Finding(what, f"{path}: expected {expected}, found {kind.described}{advice}", path))

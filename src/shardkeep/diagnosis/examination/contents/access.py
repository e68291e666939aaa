"""Check that this user can read the files of a job, and that links lead somewhere."""

from __future__ import annotations

import errno
import os
import stat
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import TypeVar

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.contents.data_files import Contents, DataFile
from shardkeep.diagnosis.examination.contents.listing import Entry, by_folder
from shardkeep.diagnosis.examination.contents.wording import arguments, named
from shardkeep.diagnosis.examination.report import Problem
from shardkeep.errors import ShardkeepError
from shardkeep.files.locks.mounts import mount_of
from shardkeep.files.locks.probe import is_of_one_kernel
from shardkeep.files.sidecar import user_name
from shardkeep.hdf5.segments.run_folder import list_ranks
from shardkeep.quantities import counted

__all__ = ["check_access"]

_K = TypeVar("_K")
_T = TypeVar("_T")
_READERS = (("u", stat.S_IRUSR), ("g", stat.S_IRGRP), ("o", stat.S_IROTH))
_MANY_NAMES = 10_000
# The longest suffix that Shardkeep adds to a name is that of an address file; the limit of a name is 255.
_LONGEST_NAME_BYTES = 255 - len(".collector.json")
_LONGEST_PATH_BYTES = 4096 - 256


def check_access(contents: Contents) -> Iterator[Problem]:
    """Find files without access, sets of unlike owners and modes, broken links, and names near the limits."""
    listing = contents.listing
    user, groups = os.geteuid(), {os.getegid(), *os.getgroups()}
    closed = [entry for entry in listing.files if not _may_read(entry, user, groups)]
    known = {entry.path for entry in closed}
    yield from _closed(closed)
    yield from _failed((path, error) for path, error in listing.failed if path not in known)
    yield from _unlike(contents.data)
    yield from _links(contents)
    for run in listing.runs:
        yield from _run_folder(run)
    yield from _names(contents)


def _failed(failed: Iterable[tuple[str, OSError]]) -> Iterator[Problem]:
    texts = ((path, error.strerror or str(error)) for path, error in failed)
    for (folder, text), paths in _grouped(((os.path.dirname(path), text), path) for path, text in texts):
        evidence = f"it cannot be read: {text}"
        if len(paths) > 1:
            evidence = f"{counted(len(paths), 'file')} cannot be read: {text}: {named(paths)}"
        fix = "ask its owner for access, or run as a user who has it"
        if text != os.strerror(errno.EACCES):
            fix = "the file system or its disk has a fault: see its log, and fetch the files again"
        path = paths[0] if len(paths) == 1 else folder or os.curdir
        yield Problem("error", "access", evidence, fix, _show(paths[0]), path)


def _closed(files: Iterable[Entry]) -> Iterator[Problem]:
    for folder, found in by_folder(files):
        first, paths = found[0], [entry.path for entry in found]
        owner = f"owner {user_name(first.status.st_uid)}, mode {stat.S_IMODE(first.status.st_mode):o}"
        evidence = (
            f"{user_name(os.geteuid())} cannot read {counted(len(paths), 'file')}: {named(paths)} ({owner})"
        )
        names = arguments(paths)
        command = f"chmod a+r {names}" if names is not None else f"chmod -R a+rX {as_argument(folder)}"
        yield Problem("error", "access", evidence, "their owner must allow it", command, folder)


def _may_read(entry: Entry, user: int, groups: set[int]) -> bool:
    mode = entry.status.st_mode
    mine, group = entry.status.st_uid == user, entry.status.st_gid in groups
    bit = stat.S_IRUSR if mine else stat.S_IRGRP if group else stat.S_IROTH
    if user == 0 or mode & bit:
        return True
    # An access control list may allow more than the mode.
    return os.access(entry.path, os.R_OK, effective_ids=os.access in os.supports_effective_ids)


def _unlike(data: Iterable[DataFile]) -> Iterator[Problem]:
    """Find sets of which some files are closed to users that can read the others, or have another owner."""
    groups: defaultdict[tuple[str, ...], list[Entry]] = defaultdict(list)
    for one in data:
        if one.expected is not None:
            groups[one.siblings].append(one.entry)
    for files in groups.values():
        usual = Counter(_readable(entry) for entry in files).most_common(1)[0][0]
        closed = [entry for entry in files if usual & ~_readable(entry)]
        owner = Counter(entry.status.st_uid for entry in files).most_common(1)[0][0]
        others = [entry for entry in files if entry.status.st_uid != owner]
        if closed:
            paths = [entry.path for entry in closed]
            mode = stat.S_IMODE(closed[0].status.st_mode)
            evidence = (
                f"{len(closed):,} of {counted(len(files), 'file')} of a set have mode {mode:o}, which other"
            )
            evidence += f" users cannot read as they can the rest: {named(paths)}"
            letters = "".join(who for who, bit in _READERS if usual & bit)
            command = f"chmod {letters}+r {arguments(paths) or as_argument(closed[0].folder) + '/*'}"
            fix = "give all files of the set one mode"
            yield Problem("warning", "access", evidence, fix, command, closed[0].folder)
        elif others:
            paths = [entry.path for entry in others]
            evidence = f"{len(others):,} of {counted(len(files), 'file')} of a set belong to "
            evidence += (
                f"{user_name(others[0].status.st_uid)}, the rest to {user_name(owner)}: {named(paths)}"
            )
            fix = "find out which program wrote them, such as one in a container that runs as root"
            yield Problem("note", "access", evidence, fix, _show(paths[0]), others[0].folder)


def _readable(entry: Entry) -> int:
    return stat.S_IMODE(entry.status.st_mode) & 0o444


def _links(contents: Contents) -> Iterator[Problem]:
    for folder, found in _grouped(
        (os.path.dirname(path) or os.curdir, (path, target)) for path, target in contents.listing.broken
    ):
        (first, target), paths = found[0], [path for path, _ in found]
        evidence = (
            f"{counted(len(paths), 'link')} without a target: {named(paths)}; the first leads to {target}"
        )
        annex = "annex/objects/" in target
        fix = "fetch the content" if annex else "restore the target, or correct the link"
        command = f"git annex get {as_argument(folder)}" if annex else f"ls -l {as_argument(first)}"
        yield Problem("error", "access", evidence, fix, command, folder)
    for folder, links in by_folder(entry for entry in contents.listing.files if entry.is_link):
        try:
            here = os.stat(folder).st_dev
        except OSError:
            continue
        far = [entry for entry in links if entry.status.st_dev != here]
        if far:
            target = os.path.realpath(far[0].path)
            mount = mount_of(os.path.dirname(target))
            kind = f" ({mount.kind} at {mount.point})" if mount is not None else ""
            evidence = (
                f"{counted(len(far), 'link')} to another file system{kind}: {named([e.path for e in far])}"
            )
            fix = "check that every machine of the job has it mounted at that place"
            yield Problem("note", "access", evidence, fix, f"df {as_argument(target)}", folder)


def _run_folder(run: str) -> Iterator[Problem]:
    try:
        folders = [run, *list_ranks(run).values()]
    except (ShardkeepError, OSError):
        return  # the check of runs reports it
    closed = [folder for folder in folders if not os.access(folder, os.W_OK | os.X_OK)]
    if closed:
        owner = user_name(os.stat(closed[0]).st_uid)
        evidence = f"{user_name(os.geteuid())} cannot write in {counted(len(closed), 'folder')} of this run: "
        evidence += f"{named(closed)} (owner {owner})"
        command = f"sudo chown -R {os.geteuid()} {as_argument(run)}"
        yield Problem(
            "error", "access", evidence, "resume it as its owner, or change the owner", command, run
        )


def _names(contents: Contents) -> Iterator[Problem]:
    for folder, count in contents.listing.folders.items():
        mount = None if count < _MANY_NAMES or is_of_one_kernel(folder) else mount_of(folder)
        if mount is not None:
            evidence = (
                f"{count:,} names in one folder on {mount.kind}: listing and opening wait for the server"
            )
            fix = "divide the data set into fewer, larger shards, or into sub-folders"
            yield Problem("note", "access", evidence, fix, None, folder)
    here_bytes = len(os.fsencode(os.getcwd())) + 1
    for one in contents.data:
        name_bytes, path_bytes = len(os.fsencode(one.entry.name)), len(os.fsencode(one.path))
        path_bytes += 0 if os.path.isabs(one.path) else here_bytes
        if one.expected is not None and (
            name_bytes > _LONGEST_NAME_BYTES or path_bytes > _LONGEST_PATH_BYTES
        ):
            evidence = f"a name of {name_bytes} bytes in a path of {path_bytes:,}: the limits are 255 and"
            evidence += " 4,095, and no room is left for the name of its lock or index"
            yield Problem("warning", "access", evidence, "use shorter names", None, one.path)


def _grouped(pairs: Iterable[tuple[_K, _T]]) -> Iterable[tuple[_K, list[_T]]]:
    groups: defaultdict[_K, list[_T]] = defaultdict(list)
    for key, value in pairs:
        groups[key].append(value)
    return groups.items()


def _show(path: str) -> str:
    return f"ls -ld {as_argument(path)}"

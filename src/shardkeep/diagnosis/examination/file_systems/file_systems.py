"""Check of the file systems of the paths: type, options, and what works between two processes there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.file_systems.probe import Probe, probe_all
from shardkeep.diagnosis.examination.report import Fact, Problem, Severity
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.files.locks.mounts import Mount, mount_of
from shardkeep.files.locks.probe import lock_fault

__all__ = ["CHECKED", "describe_mount", "error_text", "file_systems"]

_CHECK = "file system"
_MOST = 8
_SLOW_S = 1.0
_SKEWED_S = 2.0
_SHORT_NAME = 200
_ENOTSUPP = 524  # of the kernel; not in Python's errno
_FULL = (errno.ENOSPC, errno.EDQUOT)
# The three that mean that the file system, or this mount of it, has no locks at all.
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, _ENOTSUPP)
CHECKED = {
    "flock": "flock excludes a second process",
    "posix_lock": "fcntl locks exclude a second process",
    "create_exclusively": "O_EXCL creates a file once",
    "replace": "rename replaces a file",
    "link": "hard links work",
    "shared_map": "mmap is shared",
}


def file_systems(subject: Subject) -> Iterator[Problem | Fact]:
    """Yield facts and problems of each file system that the paths are on."""
    folders = _one_folder_each(subject.folders)[:_MOST]
    for folder, found in zip(folders, probe_all(folders, subject), strict=True):
        mount = mount_of(folder)
        yield from _describe(folder, mount)
        yield from _mount_problems(folder, mount, subject)
        yield from _probe_facts(folder, found)
        yield from _probe_problems(folder, mount, found, subject)


def _one_folder_each(folders: tuple[str, ...]) -> list[str]:
    """Return one folder of each file system, a writable one where there is one."""
    chosen: dict[int, str] = {}
    for folder in folders:
        device = os.stat(folder).st_dev
        if device not in chosen or (_writable(folder) and not _writable(chosen[device])):
            chosen[device] = folder
    return list(chosen.values())


def _writable(folder: str) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def _describe(folder: str, mount: Mount | None) -> Iterator[Fact]:
    if mount is not None:
        yield Fact(_CHECK, folder, describe_mount(mount))


def describe_mount(mount: Mount) -> str:
    """Return type, source, point and options of a mount."""
    return f"{mount.kind} ({mount.source}) at {mount.point}, {','.join(mount.options)}"


def _mount_problems(folder: str, mount: Mount | None, subject: Subject) -> Iterator[Problem]:
    if mount is None:
        return
    show = f"findmnt -T {as_argument(folder)}"
    fault = lock_fault(mount)
    if fault is not None:
        trusted = subject.environment.get("SHARDKEEP_LOCKS") == "trust"
        yield Problem(
            "note" if trusted else "warning",
            _CHECK,
            f"{mount.kind} ({mount.source}) at {mount.point}: {fault}",
            "let one process or one machine write there, or put written files on another file system; only if"
            " locks do exclude all writers, set SHARDKEEP_LOCKS=trust",
            show,
            folder,
        )
    if mount.kind in ("nfs", "nfs4") and mount.option("soft") is not None:
        yield Problem(
            "warning",
            _CHECK,
            f"{mount.source} at {mount.point} is mounted with the option soft: a slow server becomes an"
            " I/O error, and written data can be lost (nfs(5))",
            "mount it with the option hard",
            show,
            folder,
        )
    if mount.kind == "lustre" and mount.option("noflock") is not None:
        yield Problem(
            "error",
            _CHECK,
            f"{mount.source} at {mount.point} is mounted with the option noflock: every lock fails",
            "let the administrator mount it with the option flock",
            show,
            folder,
        )


def _probe_facts(folder: str, found: Probe) -> Iterator[Fact]:
    if found.folder_error is not None:
        reason = os.strerror(found.folder_error)
        yield Fact(_CHECK, f"{folder}: not tried out", f"no folder for scratch files can be made: {reason}")
        return
    if found.exit_code is not None:
        text = f"the process for it ended with exit code {found.exit_code}"
        if found.exit_code <= 0:
            text = "the process for it did not start in time: the machine is busy"
        yield Fact(_CHECK, f"{folder}: not tried out", text)
    for operation, name in CHECKED.items():
        if operation in found.results:
            yield Fact(_CHECK, f"{folder}: {name}", "yes" if found.results[operation] else "no")
        elif operation in found.errors:
            yield Fact(_CHECK, f"{folder}: {name}", f"error {error_text(found.errors[operation])}")
    if "sync" in found.results:
        yield Fact(_CHECK, f"{folder}: fsync of 1 MiB", f"{found.results['sync'] * 1000:.0f} ms")
    if "clock" in found.results:
        clock = found.results["clock"]
        unit = "whole seconds" if clock["is_coarse"] else "fractions of seconds"
        text = f"{clock['skew_s'] * 1000:+.0f} ms from the clock of this machine, in {unit}"
        yield Fact(_CHECK, f"{folder}: times of files", text)
    if "names" in found.results:
        names = found.results["names"]
        case = "differ" if names["case_matters"] else "are the same"
        yield Fact(_CHECK, f"{folder}: names", f"up to {names['longest']} bytes; a and A {case}")


def _probe_problems(folder: str, mount: Mount | None, found: Probe, subject: Subject) -> Iterator[Problem]:
    def problem(severity: Severity, evidence: str, fix: str) -> Problem:
        return Problem(severity, _CHECK, evidence, fix, f"df -hT {as_argument(folder)}", folder)

    if found.hangs is not None:
        yield problem(
            "error",
            f"{_describe_hang(found.hangs)} in {folder} did not end in 5 s",
            "a program waits there for ever: check the file server and its lock service, or use another"
            " file system",
        )
    if found.folder_error in _FULL or any(one in _FULL for one in found.errors.values()):
        yield problem(
            "error",
            f"not even 1 MiB can be written in {folder}: the file system is full or its quota is used up",
            "free space there, or write to another file system",
        )
    for operation, number in found.errors.items():
        if number in _FULL:
            continue
        if operation == "flock":
            yield _flock_error(folder, mount, number, subject)
        else:
            what, consequence, severity = _CONSEQUENCES[operation]
            yield problem(
                severity, f"{what} fails with {error_text(number)}: {consequence}", _OTHER_FILE_SYSTEM
            )
    for operation, (what, consequence, severity) in _CONSEQUENCES.items():
        if found.results.get(operation) is False:
            yield problem(severity, f"{what} has no effect: {consequence}", _OTHER_FILE_SYSTEM)
    for severity, evidence, fix in _measured(found):
        yield problem(severity, evidence, fix)


_OTHER_FILE_SYSTEM = "keep files that several processes write on another file system"
# Operation: its name, the consequence where it fails, and how severe that is.
_CONSEQUENCES: dict[str, tuple[str, str, Severity]] = {
    "flock": ("flock", "two writers of one file do not exclude each other and destroy it", "error"),
    "posix_lock": ("a lock by fcntl", "SQLite and MPI-IO do not work there", "warning"),
    "create_exclusively": ("O_EXCL", "two processes may create one file at the same time", "error"),
    "replace": ("rename over a file", "a file cannot be published as a whole", "error"),
    "link": ("a hard link", "Shardkeep publishes by rename instead; some other programs fail", "note"),
    "shared_map": ("a shared mmap", "readers and writers that map one file see different data", "warning"),
    "clock": ("writing a file", "nothing can be stored there", "error"),
    "sync": ("fsync", "a power cut can lose files that were reported as stored", "error"),
    "names": ("making a file", "nothing can be stored there", "error"),
}


def _measured(found: Probe) -> Iterator[tuple[Severity, str, str]]:
    """Yield severity, evidence and fix of what works, but slowly or inexactly."""
    seconds = found.results.get("sync", 0.0)
    if seconds > _SLOW_S:
        yield (
            "warning",
            f"fsync of 1 MiB took {seconds:.1f} s: each commit of a worker file waits as long",
            "commit less often, or write to a local disk and copy the result",
        )
    clock = found.results.get("clock", {"skew_s": 0.0, "is_coarse": False})
    if abs(clock["skew_s"]) > _SKEWED_S:
        ahead = "ahead of" if clock["skew_s"] > 0 else "behind"
        yield (
            "warning",
            f"the clock of the file server is {abs(clock['skew_s']):.1f} s {ahead} that of this machine: ages"
            " of files are wrong, and programs that compare times take new files for old ones",
            "synchronise both clocks (chronyc tracking, timedatectl)",
        )
    if clock["is_coarse"]:
        yield (
            "note",
            "times of files are whole seconds: a file that changes twice in one second looks unchanged",
            "do not rely on times of files there",
        )
    names = found.results.get("names", {"longest": _SHORT_NAME, "case_matters": True})
    if not names["case_matters"]:
        yield (
            "note",
            "names that differ only in upper and lower case are one file",
            "do not use such names, also in archives that are unpacked there",
        )
    if names["longest"] < _SHORT_NAME:
        yield (
            "note",
            f"names have at most {names['longest']} bytes; unfinished files have longer names than results",
            "choose short names",
        )


def _flock_error(folder: str, mount: Mount | None, number: int, subject: Subject) -> Problem:
    kind = "the file system" if mount is None else mount.kind
    meaning, fix = _FLOCK_ERRORS.get(number, (f"{kind} refuses locks", _OTHER_FILE_SYSTEM))
    evidence = f"flock fails with {error_text(number)}: {meaning}"
    if subject.environment.get("HDF5_USE_FILE_LOCKING", "").upper() in ("FALSE", "0"):
        evidence += "; HDF5 opens files without locks, since HDF5_USE_FILE_LOCKING is off"
    return Problem("error", _CHECK, evidence, fix, f"flock -n {as_argument(folder)} true; echo $?", folder)


_FLOCK_ERRORS: dict[int, tuple[str, str]] = {
    errno.EIO: (
        "the lock service of the file server answers with an error",
        "check the server and the kernel's log (dmesg); do not write there before it is repaired",
    ),
    errno.EAGAIN: (
        "a new file is locked already, so the server kept a lock of a process that is gone",
        "let the administrator remove stale locks, or restart the lock service of the server",
    ),
    errno.ENOLCK: (
        "the file server has no lock service, or no locks left",
        "start lockd and statd on server and client, or mount with local_lock=flock if only this machine"
        " writes; else keep one file per process",
    ),
    **dict.fromkeys(
        (errno.ENOSYS, errno.EOPNOTSUPP),
        (
            "this file system has no locks",
            "keep one file per process (hdf5.WorkerFile), or write on another file system; h5py reads there"
            " with HDF5_USE_FILE_LOCKING=FALSE",
        ),
    ),
    _ENOTSUPP: (
        "the driver of this file system passes no locks on (ENOTSUPP of the kernel)",
        "mount with the option flock or local_lock=flock, or keep one file per process",
    ),
}


def error_text(number: int) -> str:
    """Return the number and the name of an error of the system."""
    if number == _ENOTSUPP:
        return f"{number} (ENOTSUPP)"
    return f"{number} ({errno.errorcode.get(number, os.strerror(number))})"


def _describe_hang(operation: str) -> str:
    return _CONSEQUENCES[operation][0] if operation in _CONSEQUENCES else operation

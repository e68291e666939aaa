"""Bench of a storage: operations between processes, and between hosts, and what follows for its users."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any

from shardkeep._paths_in_messages import as_argument
from shardkeep.diagnosis.examination.file_systems.file_systems import CHECKED, describe_mount, error_text
from shardkeep.diagnosis.examination.file_systems.probe import Probe, probe_all
from shardkeep.diagnosis.examination.file_systems.second_host import identity
from shardkeep.diagnosis.examination.file_systems.storage_report import (
    StorageReport,
    StorageTrial,
    StorageUse,
)
from shardkeep.diagnosis.examination.subject import Subject
from shardkeep.errors import DurabilityError, InternalError, NotFoundError, PlanError
from shardkeep.files.kinds.urls import local_path
from shardkeep.files.locks.mounts import Mount, mount_of
from shardkeep.files.locks.probe import is_of_one_kernel, lock_fault, locks_are_trusted
from shardkeep.world import World

__all__ = ["bench"]

_LONGEST_S = 180.0
_BETWEEN_HOSTS_S = 300.0
_END_S = 10.0
_HOST = "host:"
_SLOW_S = 1.0
_FEW_FILES = 20
_NAMES = {
    **CHECKED,
    "sync": "fsync of 1 MiB",
    "create_race": "of many processes one creates a name (O_EXCL)",
    "link_race": "of many processes one links a name",
    "replace_race": "readers see whole files while renames replace them",
    "counter": "no change under flock is lost",
    "dead_lock": "the lock of a killed process is free",
    "append": "a reader sees what a writer appends",
    "visible": "another process sees a new file",
    "sequential": "a large file, written and synced, then read",
    "small_files": "files of 4 KiB, published and synced, then read",
}
_WHOLE = ("sync", "replace", "replace_race", "visible", "sequential", "small_files")
_LOCKS = ("flock", "dead_lock", "counter")
# Uses, the functions that rely on each, and the operations that it needs.
_USES = {
    "whole files, one for each process": ("Writer, WorkerFile, merge, publish", _WHOLE),
    "one of several wins a name": ('exists="fail"', ("create_exclusively", "create_race")),
    "reading a file that grows": ("follow", ("append",)),
    "several writers of one file": ('files.lock, exists="append", hdf5.open("r+"), Collector', _LOCKS),
}


def bench(storage: str | os.PathLike[str], *, hosts: int = 1, wait_s: float = 120.0) -> StorageReport:
    """Test a storage with many processes, and report which uses of Shardkeep are safe there.

    Takes five seconds to three minutes, and needs room for 128 MiB. Scratch files are in one hidden folder,
    which is removed at the end.

    Parameters
    ----------
    storage : path
        An existing folder on the storage.
    hosts : int
        2 to try operations between this host and a second one as well, on which the same user runs
        ``shardkeep bench --storage PATH --second-host``, or `shardkeep.diagnosis.assist_bench`.
    wait_s : float
        Seconds to wait for the second host.

    Returns
    -------
    StorageReport
        Trials, uses and settings.

    Raises
    ------
    NotFoundError
        The folder does not exist, or the second host did not come in time.
    DurabilityError
        Nothing can be written to the folder.
    PlanError
        `hosts` is not 1 or 2, `storage` is a URL, or the value of ``SHARDKEEP_LOCKS`` is not valid.

    Examples
    --------
    >>> import tempfile
    >>> import shardkeep as sk
    >>> sk.bench(tempfile.mkdtemp()).ok
    True
    """
    folder = os.path.abspath(local_path(storage))
    if hosts not in (1, 2):
        raise PlanError(f"hosts must be 1 or 2, not {hosts!r:.80}")
    if not os.path.isdir(folder):
        raise NotFoundError(f"{os.fspath(storage)}: must be an existing folder", path=storage)
    trusted = locks_are_trusted()
    start_s = time.monotonic()
    limit_s = _LONGEST_S + (hosts - 1) * (wait_s + _BETWEEN_HOSTS_S)
    subject = Subject((), (), World(), {}, deadline_s=start_s + limit_s + _END_S)
    (found,) = probe_all(
        [folder], subject, longest_s=limit_s, thorough=True, wait_s=wait_s if hosts == 2 else 0.0
    )
    _check(found, folder, hosts, wait_s)
    second = (found.results.get("second_host") or {}).get("host")
    if second is not None and not _host_was_tried(found):
        second += ", which is this host"
    mount = mount_of(folder)
    trials = _trials(found)
    return StorageReport(
        storage=folder,
        file_system="" if mount is None else describe_mount(mount),
        second_host=second,
        trials=trials,
        uses=_uses(trials, found, mount, trusted),
        settings=tuple(_settings(trials, found, mount)),
        seconds=round(time.monotonic() - start_s, 3),
    )


def _check(found: Probe, folder: str, hosts: int, wait_s: float) -> None:
    if found.folder_error is not None:
        reason = os.strerror(found.folder_error)
        raise DurabilityError(f"{folder}: no scratch folder can be made there: {reason}", path=folder)
    if found.exit_code is not None:
        raise InternalError(f"the process that tries out {folder} ended with exit code {found.exit_code}")
    if hosts == 2 and found.results.get("second_host", "") is None:
        raise NotFoundError(
            f"no second host came in {wait_s:.0f} s; run there, as the same user:"
            f" shardkeep bench --storage {as_argument(folder)} --second-host",
            path=folder,
        )


def _trials(found: Probe) -> tuple[StorageTrial, ...]:
    trials = []
    for key in [*_NAMES, *(_HOST + name for name in _NAMES)]:
        operation = key.removeprefix(_HOST)
        if key in found.errors:
            is_ok, value = False, f"error {error_text(found.errors[key])}"
        elif key == found.hangs:
            is_ok, value = False, "did not end"
        elif key in found.results:
            is_ok, value = _judge(operation, found.results[key])
        else:
            continue
        measured = found.results.get(key)
        trials.append(StorageTrial(operation, _NAMES[operation], value, is_ok, key != operation, measured))
    return tuple(trials)


def _judge(operation: str, result: Any) -> tuple[bool, str]:
    """Return whether a result is as it must be, and its text."""
    if isinstance(result, bool):
        return result, "yes" if result else "no"
    if result is None:
        return False, "never"
    if isinstance(result, float):
        return True, f"{'' if operation == 'sync' else 'after '}{result * 1000:,.1f} ms"
    if operation == "sequential":
        return True, f"{result['write'] / 1e6:,.0f} MB/s, {result['read'] / 1e6:,.0f} MB/s"
    if operation == "small_files":
        return True, f"{result['write']:,.0f} a second, {result['read']:,.0f} a second"
    tried, wrong = result["tried"], result["wrong"]
    return not wrong, f"no: {wrong:,} of {tried:,} are wrong" if wrong else f"yes, {tried:,} of {tried:,}"


def _uses(
    trials: Sequence[StorageTrial], found: Probe, mount: Mount | None, trusted: bool
) -> tuple[StorageUse, ...]:
    tried = {one.operation for one in trials}
    uses = []
    for name, (functions, needs) in _USES.items():
        bad = [
            f"{one.name}{' (second host)' if one.between_hosts else ''}: {one.value}"
            for one in trials
            if one.operation in needs and not one.is_ok
        ]
        bad += [f"{_NAMES[one]}: not tried" for one in needs if one not in tried]
        fault = None if mount is None or needs is not _LOCKS else lock_fault(mount)
        if fault is not None and not bad and not trusted and not _host_was_tried(found):
            bad = [f"{mount.kind if mount else ''}: {fault}"]
        uses.append(StorageUse(name, functions, not bad, "; ".join(bad)))
    return tuple(uses)


def _host_was_tried(found: Probe) -> bool:
    second = found.results.get("second_host")
    return second is not None and second["kernel"] != identity()["kernel"]


def _settings(trials: Sequence[StorageTrial], found: Probe, mount: Mount | None) -> list[str]:
    """Return the settings that follow from the trials."""
    bad = {one.operation for one in trials if not one.is_ok}
    slowest = {
        operation: max(
            (one.measured for one in trials if one.operation == operation and one.is_ok), default=0.0
        )
        for operation in ("visible", "sync")
    }
    fault = None if mount is None else lock_fault(mount)
    lines = []
    if bad.intersection(_LOCKS):
        lines.append("write with WorkerFile and ShardWriter, which need no locks, and merge the files")
        if "flock" in found.errors:
            lines.append("HDF5_USE_FILE_LOCKING=FALSE for programs that only read HDF5 files with h5py")
    elif fault is not None and _host_was_tried(found):
        lines.append("SHARDKEEP_LOCKS=trust: locks exclude the second host")
    elif fault is not None:
        lines.append("SHARDKEEP_LOCKS=trust only if --hosts 2 shows that locks exclude a second host")
    elif mount is not None and not _host_was_tried(found) and not is_of_one_kernel(mount.point):
        lines.append("try it with --hosts 2: this run says nothing about other hosts")
    if slowest["visible"] > _SLOW_S:
        lines.append(
            f"wait {slowest['visible']:.0f} s before another host reads new files, such as before merge"
        )
    if slowest["sync"] > _SLOW_S:
        lines.append(f"commit seldom: each waits for fsync, which took {slowest['sync']:.1f} s")
    files = found.results.get("small_files", {"write": _FEW_FILES})["write"]
    if files < _FEW_FILES:
        lines.append(
            f"few large shards, and commits with the checkpoints: {files:.1f} files are made in a second"
        )
    return lines

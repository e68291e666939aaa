"""Judgement of a storage from its mount and from what the processes found.

Covers `shardkeep.cli.output.bench` and `shardkeep.diagnosis.examination.file_systems.storage_report`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shardkeep as sk
from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.output.bench import print_bench
from shardkeep.diagnosis import StorageReport, StorageUse
from shardkeep.diagnosis.examination.file_systems import storage
from shardkeep.diagnosis.examination.file_systems.probe import Probe
from shardkeep.files.locks.mounts import Mount

LOCAL = Mount(1, "/data", "ext4", "/dev/sda1", ("rw",))
NFS = Mount(1, "/data", "nfs4", "host:/data", ("rw", "local_lock=none"))
SSHFS = Mount(1, "/data", "fuse.sshfs", "host:/data", ("rw",))
RACE = {"tried": 200, "wrong": 0}
SHARED = {
    **dict.fromkeys(("flock", "posix_lock", "create_exclusively", "replace"), True),
    **dict.fromkeys(("create_race", "link_race", "replace_race", "counter", "append"), RACE),
    "dead_lock": 0.001,
    "visible": 0.002,
}
HERE = {
    **SHARED,
    "link": True,
    "shared_map": True,
    "sync": 0.004,
    "sequential": {"write": 3e8, "read": 2e9},
    "small_files": {"write": 200.0, "read": 5000.0},
}
OTHER = {"second_host": {"host": "b", "kernel": "another"}} | {
    f"host:{key}": one for key, one in SHARED.items()
}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def call(results: dict[str, Any], mount: Mount = LOCAL, **others: Any) -> StorageReport:
        probe = Probe(
            results=results, hangs=others.pop("hangs", None), errors=others.pop("errors", {}), **others
        )
        monkeypatch.setattr(storage, "probe_all", lambda *_, **__: [probe])
        monkeypatch.setattr(storage, "mount_of", lambda _: mount)
        return sk.bench(tmp_path, hosts=2 if "second_host" in results else 1)

    return call


def unsafe(report: StorageReport) -> list[StorageUse]:
    return [one for one in report.uses if not one.is_safe]


def test_a_local_disk_is_safe_for_all_uses(bench: Any) -> None:
    report = bench(HERE)
    assert report.ok and report.settings == ()
    assert {one.operation for one in report.trials} == set(HERE)


def test_nfs_is_safe_by_its_options_and_should_be_tried_with_two_hosts(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "is_of_one_kernel", lambda _: False)
    report = bench(HERE, NFS)
    assert report.ok and report.settings == (
        "try it with --hosts 2: this run says nothing about other hosts",
    )


def test_a_mount_that_keeps_its_locks_is_not_safe_for_several_writers(bench: Any) -> None:
    report = bench(HERE, SSHFS)
    (use,) = unsafe(report)
    assert use.reason == "fuse.sshfs: each mount of it keeps its locks to itself"
    assert "only if --hosts 2" in report.settings[0]


def test_locks_that_exclude_a_second_host_are_trusted(bench: Any) -> None:
    report = bench(HERE | OTHER, SSHFS)
    assert report.ok and report.second_host == "b"
    assert report.settings == ("SHARDKEEP_LOCKS=trust: locks exclude the second host",)


def test_a_second_process_of_this_host_proves_nothing_about_others(bench: Any) -> None:
    here = {"second_host": {"host": "a", "kernel": storage.identity()["kernel"]}}
    report = bench(HERE | OTHER | here, SSHFS)
    assert not report.ok and report.second_host == "a, which is this host"


def test_the_variable_for_trusted_locks_is_respected(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_LOCKS", "trust")
    assert bench(HERE, SSHFS).ok


def test_locks_that_fail_lead_to_settings(bench: Any) -> None:
    some = {key: one for key, one in HERE.items() if key not in ("flock", "counter", "dead_lock")}
    report = bench(some, errors=dict.fromkeys(("flock", "counter", "dead_lock"), 95))
    (use,) = unsafe(report)
    assert "flock excludes a second process: error 95 (ENOTSUP)" in use.reason
    assert [line.split()[0] for line in report.settings] == ["write", "HDF5_USE_FILE_LOCKING=FALSE"]


def test_lost_changes_between_hosts_are_named(bench: Any) -> None:
    lost = {"host:counter": {"tried": 800, "wrong": 300}}
    (use,) = unsafe(bench(HERE | OTHER | lost, NFS))
    assert use.reason == "no change under flock is lost (second host): no: 300 of 800 are wrong"


def test_what_hangs_and_what_was_not_reached_is_not_safe(bench: Any) -> None:
    names = list(HERE)
    report = bench({name: HERE[name] for name in names[: names.index("append")]}, hangs="append")
    assert {use.reason for use in unsafe(report)} >= {"a reader sees what a writer appends: did not end"}
    assert any("another process sees a new file: not tried" in use.reason for use in unsafe(report))


def test_slow_operations_lead_to_settings(bench: Any) -> None:
    slow = {"sync": 2.5, "visible": 31.0, "small_files": {"write": 4.0, "read": 9.0}}
    report = bench(HERE | slow)
    assert report.ok
    assert [line.split(",")[0].split(":")[0] for line in report.settings] == [
        "wait 31 s before another host reads new files",
        "commit seldom",
        "few large shards",
    ]


def test_errors(bench: Any, tmp_path: Path) -> None:
    with pytest.raises(sk.NotFoundError, match=r"no second host came in 120 s; run there"):
        bench(HERE | {"second_host": None})
    with pytest.raises(sk.DurabilityError, match="Permission denied"):
        bench({}, folder_error=13)
    with pytest.raises(sk.InternalError, match="exit code 1"):
        bench({}, exit_code=1)
    with pytest.raises(sk.PlanError, match="hosts must be 1 or 2"):
        sk.bench(tmp_path, hosts=3)
    with pytest.raises(sk.NotFoundError, match="must be an existing folder"):
        sk.bench(tmp_path / "missing")


def test_the_output_has_trials_uses_reasons_and_settings(
    bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    print_bench(bench(HERE | OTHER | {"host:flock": False}, SSHFS))
    out = capsys.readouterr().out
    assert "with the second host b\n" in out and out.count("flock excludes a second process") == 3
    assert "NOT SAFE  several writers of one file" in out and "safe      reading a file that grows" in out
    assert "not safe: flock excludes a second process (second host): no" in out
    assert out.splitlines()[-1] == "verdict  1 use not safe"
    assert ExitCode.FINDINGS == 3


def test_the_command_for_the_second_host_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    monkeypatch.setattr(
        storage, "probe_all", lambda *_, **__: [Probe(results={"second_host": None}, hangs=None)]
    )
    with pytest.raises(sk.NotFoundError, match=f"--storage '{folder}' --second-host"):
        sk.bench(folder, hosts=2)

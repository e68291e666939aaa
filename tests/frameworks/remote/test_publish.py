"""Files that are published to a store: whole or not at all, by one of several processes, under faults.

Covers `shardkeep.files.remote.pending`, `shardkeep.files.remote.base_upload`,
`shardkeep.files.remote.uploads`, `shardkeep.files.remote.put_upload`,
`shardkeep.files.remote.renamed_upload` and `shardkeep.files.remote.s3_upload`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import fsspec
import numpy as np
import pytest

pytest.importorskip("hdfs_native")

import shardkeep as sk
from shardkeep.errors import ExistsError, PlanError, RemoteError
from shardkeep.files.remote import store as store_room
from shardkeep.files.remote.pending import spool_folder
from tests.frameworks.remote.servers.fault_proxy import FaultProxy
from tests.frameworks.remote.servers.store import Store
from tests.waiting import eventually

LARGE = 40 << 20  # several parts
EXCLUSIVE = ["s3", "azure", "google", "webdav", "sftp", "hdfs", "memory"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "60")


@pytest.fixture(params=EXCLUSIVE)
def store(request: pytest.FixtureRequest) -> Store:
    found: Store = request.getfixturevalue(f"{request.param}_store")
    return found


def content(url: str) -> bytes:
    return bytes(store_room.read(url))


def names(store: Store) -> list[str]:
    """Return the paths of all objects below the root."""
    fs, path = fsspec.url_to_fs(store.root)
    fs.invalidate_cache()
    try:
        below = [name.partition(path.strip("/") + "/")[2] for name in fs.find(path)]
    except FileNotFoundError:
        return []
    return sorted(filter(None, below))  # SeaweedFS lists a folder that was made for a removed object


def uploads_of(store: Store) -> list[str]:
    fs, _ = fsspec.url_to_fs(store.root)
    answer = fs.call_s3("list_multipart_uploads", Bucket="bucket")
    prefix = store.root.rpartition("/")[2] + "/"
    return [one["Key"] for one in answer.get("Uploads", []) if one["Key"].startswith(prefix)]


def test_an_object_appears_at_the_end(store: Store) -> None:
    url = f"{store.root}/folder/a.bin"
    with sk.files.publish(url) as file:
        file.write(b"whole" * 1000)
        assert names(store) == []
    assert content(url) == b"whole" * 1000
    assert names(store) == ["folder/a.bin"]
    with pytest.raises(ExistsError, match="exists: choose another name"), sk.files.publish(url):
        pass
    with sk.files.publish(url, exists="replace") as file:
        file.write(b"new")
    assert content(url) == b"new"
    assert names(store) == ["folder/a.bin"]
    assert os.listdir(spool_folder()) == []


def test_an_exception_leaves_nothing(store: Store) -> None:
    with pytest.raises(ZeroDivisionError), sk.files.publish(f"{store.root}/a.bin") as file:
        file.write(bytes(1000))
        raise ZeroDivisionError
    assert names(store) == []
    assert os.listdir(spool_folder()) == []


# The client of Azure sends up to 64 MiB in one request.
_BLOCKS = """
import sys, shardkeep as sk
from shardkeep.files.remote import requests
if sys.argv[1].startswith("az:"):
    requests.file_system(sys.argv[1])[0].service_client._config.max_single_put_size = 1 << 20
"""
_RACER = f"""{_BLOCKS}
try:
    with sk.files.publish(sys.argv[1]) as file:
        file.write(sys.argv[2].encode() * int(sys.argv[3]))
        print("ready", flush=True)
        sys.stdin.readline()
except sk.ExistsError:
    print("exists")
else:
    print("won", sys.argv[2])
"""


@pytest.mark.parametrize(
    ("name", "count", "size"),
    [
        ("s3", 6, 100),
        ("s3", 3, 20 << 20),  # two parts
        pytest.param("s3", 16, 100, marks=pytest.mark.slow),
        ("azure", 2, 100),
        ("azure", 2, 5 << 20),  # blocks
        ("google", 2, 100),
        ("webdav", 4, 100),
        ("sftp", 4, 100),
        ("hdfs", 4, 100),
    ],
)
def test_one_of_many_processes_creates_an_object(
    name: str, count: int, size: int, request: pytest.FixtureRequest
) -> None:
    store: Store = request.getfixturevalue(f"{name}_store")
    url = f"{store.root}/raced.bin"
    pipe = subprocess.PIPE
    children = [
        subprocess.Popen(
            [sys.executable, "-c", _RACER, url, f"{number:02d}", str(size)],
            stdin=pipe,
            stdout=pipe,
            text=True,
        )
        for number in range(count)
    ]
    for child in children:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
        # SeaweedFS checks the condition of a completed multipart upload outside its lock, so of several at
        # the same instant more than one may succeed.
        if name == "s3" and size > 16 << 20:
            child.wait(timeout=200)
    said = [child.communicate(timeout=200)[0].strip() for child in children]
    won = [one for one in said if one.startswith("won")]
    assert len(won) == 1 and said.count("exists") == count - 1
    assert content(url) == won[0].removeprefix("won ").encode() * size
    assert names(store) == ["raced.bin"]


def test_a_store_without_conditions_refuses_exclusive_creation(unconditional_s3_store: Store) -> None:
    url = f"{unconditional_s3_store.root}/a.bin"
    with pytest.raises(PlanError, match=r'exists="fail" cannot be kept.*pass exists="replace"'):
        sk.files.publish(url).__enter__()
    assert names(unconditional_s3_store) == []
    with sk.files.publish(url, exists="replace") as file:
        file.write(b"content")
    assert content(url) == b"content"


def test_a_large_object_is_sent_in_parts(s3_store: Store) -> None:
    url = f"{s3_store.root}/large.bin"
    data = os.urandom(1 << 20)
    with sk.files.publish(url) as file:
        for _ in range(LARGE >> 20):
            file.write(data)
    assert content(url) == data * (LARGE >> 20)
    assert fsspec.url_to_fs(url)[0].info(url)["ETag"].strip('"').endswith("-3")
    with pytest.raises(ExistsError), sk.files.publish(url) as file:
        pass


def test_an_interrupt_during_the_upload_leaves_no_upload(
    faulty_s3: tuple[Store, FaultProxy],
) -> None:
    store, proxy = faulty_s3
    url = f"{store.root}/large.bin"
    program = (
        "import sys, shardkeep as sk\n"
        "with sk.files.publish(sys.argv[1]) as file:\n"
        f"    file.write(bytes({LARGE}))\n"
    )
    proxy.inject("stall", method="PUT", target="partNumber=2")
    child = subprocess.Popen([sys.executable, "-c", program, url], stderr=subprocess.PIPE, text=True)
    eventually(lambda: any(seen.fault == "stall" for seen in proxy.seen))
    child.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in child.communicate(timeout=30)[1]
    assert names(store) == []
    assert uploads_of(store) == []


@pytest.mark.parametrize("name", ["s3", "sftp"])
def test_a_kill_during_the_upload_leaves_nothing_visible(name: str, request: pytest.FixtureRequest) -> None:
    store: Store = request.getfixturevalue(f"{name}_store")
    url = f"{store.root}/large.bin"
    program = (
        "import os, signal, sys, shardkeep as sk\n"
        "from shardkeep.files.remote.base_upload import Upload\n"
        "Upload.place = lambda self: os.kill(os.getpid(), signal.SIGKILL)\n"
        "with sk.files.publish(sys.argv[1]) as file:\n"
        f"    file.write(bytes({LARGE}))\n"
    )
    assert subprocess.run([sys.executable, "-c", program, url], check=False).returncode == -signal.SIGKILL
    assert [one for one in names(store) if not one.startswith(".")] == []
    assert len(os.listdir(spool_folder())) == 1
    with sk.files.publish(url) as file:
        file.write(b"after")
    assert content(url) == b"after"
    assert os.listdir(spool_folder()) == []
    assert names(store) == ["large.bin"]


@pytest.mark.parametrize("size", [1000, LARGE])
def test_faults_of_a_store_are_repeated(size: int, faulty_s3: tuple[Store, FaultProxy]) -> None:
    store, proxy = faulty_s3
    url = f"{store.root}/a.bin"
    with sk.files.publish(url) as file:
        file.write(os.urandom(size))
        proxy.inject("status", times=2, method="PUT", target=r"/a\.bin")
        proxy.inject("status", times=2, method="PUT", target=r"/a\.bin", status=429)
        proxy.inject("reset", times=2, method="P.*", target=r"/a\.bin")
        proxy.inject("lost", times=2, method="PUT", target=r"/a\.bin")
    assert len(content(url)) == size
    assert {"status", "reset", "lost"} <= {seen.fault for seen in proxy.seen}
    assert uploads_of(store) == []


@pytest.mark.parametrize(
    ("name", "size", "last"), [("azure", 5 << 20, "comp=blocklist"), ("google", 1000, "uploadType=")]
)
def test_a_kill_in_the_last_request_leaves_nothing_visible(
    name: str, size: int, last: str, request: pytest.FixtureRequest
) -> None:
    store, proxy = request.getfixturevalue(f"faulty_{name}")
    url = f"{store.root}/a.bin"
    program = f"""{_BLOCKS}
with sk.files.publish(sys.argv[1]) as file:
    file.write(bytes({size}))
"""
    proxy.inject("stall", target=last)
    with subprocess.Popen([sys.executable, "-c", program, url]) as child:
        eventually(lambda: any(seen.fault == "stall" for seen in proxy.seen))
        child.kill()
    assert names(store) == []
    done = subprocess.run([sys.executable, "-c", program, url], check=False)
    assert done.returncode == 0 and names(store) == ["a.bin"]
    assert content(url) == bytes(size)


@pytest.mark.parametrize("name", ["azure", "google"])
def test_a_lost_answer_of_a_creation_is_not_a_refusal(name: str, request: pytest.FixtureRequest) -> None:
    store, proxy = request.getfixturevalue(f"faulty_{name}")
    url = f"{store.root}/a.bin"
    with sk.files.publish(url) as file:
        file.write(b"ours")
        proxy.inject("status", method="PUT|POST")
        fault = proxy.inject("lost", method="PUT|POST")
    assert fault.times == 0
    assert content(url) == b"ours"
    with pytest.raises(ExistsError), sk.files.publish(url) as file:
        pass


def test_a_bucket_without_exclusive_creation_is_refused(
    google_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{google_store.root}/a.tfrecord"

    async def put_file(
        self: object, source: str, path: str, metadata: object = None, **kwargs: object
    ) -> None:
        pass  # the arguments of gcsfs 2024.10

    async def is_zonal(self: object, bucket: str) -> bool:
        return bucket == "bucket"

    kind = type(fsspec.url_to_fs(url)[0])
    with monkeypatch.context() as patch:
        patch.setattr(kind, "_put_file", put_file)
        with pytest.raises(PlanError, match="needs a newer gcsfs"):
            sk.tfrecord.Writer(url)
    monkeypatch.setattr(kind, "_is_zonal_bucket", is_zonal, raising=False)
    with pytest.raises(PlanError, match="only reads them"):
        sk.tfrecord.Writer(url)


def test_a_store_that_fails_leaves_nothing(
    faulty_s3: tuple[Store, FaultProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, proxy = faulty_s3
    monkeypatch.setenv("SHARDKEEP_REMOTE_TIMEOUT_S", "20")
    options = {**store.options, "config_kwargs": {"retries": {"max_attempts": 0}}}
    store._replace(options=options).use(monkeypatch)  # without the repeats of the back end
    fault = proxy.inject("status", times=10_000, method="PUT", target=r"/a\.bin")
    expected = pytest.raises(RemoteError, match=r"/a\.bin with status 503, request")
    with expected as caught, sk.files.publish(f"{store.root}/a.bin") as file:
        file.write(b"content")
    assert "test-secret-of-s3" not in str(caught.value)
    fault.times = 0
    assert names(store) == []


def test_a_set_appears_whole_or_not_at_all(store: Store) -> None:
    urls = [f"{store.root}/{name}" for name in "abc"]
    with sk.files.publish(urls[2]) as file:
        file.write(b"old")
    with pytest.raises(ExistsError), sk.files.publish_set(urls) as files:
        pass
    assert names(store) == ["c"]
    with sk.files.publish_set(urls[:2]) as files:
        for number, file in enumerate(files):
            file.write(b"%d" % number)
    assert [content(url) for url in urls] == [b"0", b"1", b"old"]


def test_a_writer_of_a_path(store: Store) -> None:
    with sk.files.publish_path(f"{store.root}/a.txt") as temporary:
        Path(temporary).write_text("by name")
    assert content(f"{store.root}/a.txt") == b"by name"


# -- writers and jobs ----------------------------------------------------------------------------------------


def records(url: str) -> list[bytes]:
    return list(sk.tfrecord.Reader(url))


def test_writers_and_jobs(store: Store, tmp_path: Path) -> None:
    root = store.root
    with sk.tfrecord.Writer(f"{root}/a.tfrecord") as w:
        for i in range(10):
            w.write(b"%d" % i)
    expected = [b"%d" % i for i in range(10)]
    assert records(f"{root}/a.tfrecord") == expected
    with pytest.raises(ExistsError):
        sk.tfrecord.Writer(f"{root}/a.tfrecord")
    with sk.tfrecord.ShardWriter(f"{root}/s-{{shard}}-of-{{shards}}", shard_records=4) as shards:
        for one in expected:
            shards.write(one)
    assert shards.paths == [f"{root}/s-{i}-of-3" for i in range(3)]
    assert [one for path in shards.paths for one in records(path)] == expected
    report = sk.concat(shards.paths, f"{root}/joined.tfrecord")
    assert report.outputs[0].path == f"{root}/joined.tfrecord"
    assert records(f"{root}/joined.tfrecord") == expected
    sk.split(f"{root}/joined.tfrecord", f"{root}/p-{{shard}}", shards=2)
    assert records(f"{root}/p-0") + records(f"{root}/p-1") == expected
    sk.pack({"x": np.arange(4)}, f"{root}/packed-{{shard}}", shards=2, shuffle=3)
    assert len(records(f"{root}/packed-0") + records(f"{root}/packed-1")) == 4
    with sk.files.publish(f"{root}/damaged/a.tfrecord") as file:
        file.write(content(f"{root}/a.tfrecord")[:-3])
    assert sk.repair(f"{root}/damaged", f"{root}/repaired").output == f"{root}/repaired"
    assert records(f"{root}/repaired/a.tfrecord") == expected[:-1]
    with pytest.raises(ExistsError, match="is not empty"):
        sk.repair(f"{root}/damaged", f"{root}/repaired")
    assert os.listdir(spool_folder()) == []


def test_a_merge_to_a_store(s3_store: Store, tmp_path: Path) -> None:
    for rank in range(2):
        with sk.hdf5.WorkerFile(tmp_path / "run", sk.World(rank=rank, size=2)) as out:
            out.append("loss", [float(rank)])
            out.commit(step=1)
    report = sk.hdf5.merge(tmp_path / "run", f"{s3_store.root}/all.h5")
    assert report.rows == {"loss": 2}
    with sk.hdf5.open(f"{s3_store.root}/all.h5") as file:
        assert file["loss"][:].tolist() == [0.0, 1.0]
    with pytest.raises(ExistsError):
        sk.hdf5.merge(tmp_path / "run", f"{s3_store.root}/all.h5")
    with pytest.raises(PlanError, match="virtual"):
        sk.hdf5.merge(tmp_path / "run", f"{s3_store.root}/v.h5", mode="virtual")


def test_an_append_and_a_lock_are_refused(memory_store: Store) -> None:
    with pytest.raises(PlanError, match="append"):
        sk.tfrecord.Writer(f"{memory_store.root}/a", exists="append")
    with pytest.raises(PlanError, match="local"):
        sk.files.lock(f"{memory_store.root}/a")


@pytest.mark.parametrize("url", ["zip://a::memory://none.zip", "http://127.0.0.1:1/a"])
def test_a_store_that_writes_no_whole_objects_is_refused(url: str) -> None:
    with pytest.raises(PlanError, match="only reads them"):
        sk.tfrecord.Writer(url)

"""Jobs on many files with an engine and without: the same files and the same reports."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import shardkeep as sk
from shardkeep.files.threads.work import Tick, WorkFile
from shardkeep.plan import Dataset, Receipt, Segment
from shardkeep.plan.proof.description import DescribedReceipt
from tests.png_files import deep_png

FILES = 60


def make_data(folder: Path) -> Path:
    """Make shards of several sizes, a damaged and a compressed one, a run of four ranks, and receipts."""
    data = folder / "data"
    data.mkdir()
    random = np.random.default_rng(4)
    with sk.tfrecord.ShardWriter(data / "train-{shard:05d}-of-{shards:05d}.tfrecord", shards=FILES) as out:
        for number in range(FILES * 40):
            out.write(random.bytes(int(random.integers(0, 3000))) + b"%d" % number)
    with sk.tfrecord.Writer(data / "more.tfrecord.gz", compression="gzip") as writer:
        for number in range(500):
            writer.write(b"%d" % number * 9)
    for name in ("cats", "dogs"):
        (data / "photos" / name).mkdir(parents=True)
        for number in range(40):
            png = deep_png(random.integers(0, 255, (9, 7, 3), np.uint8))
            (data / "photos" / name / f"{number}.png").write_bytes(png)
    (data / "broken").mkdir()
    for number in range(6):
        with sk.tfrecord.Writer(data / f"broken/b{number}.tfrecord") as writer:
            for record in range(60):
                writer.write(b"%d" % record * 30)
        if number % 3:
            damage(data / f"broken/b{number}.tfrecord")
    for rank in range(4):
        with sk.hdf5.WorkerFile(data / "run", sk.World(rank=rank, size=4)) as worker:
            worker.declare("packed", "i8", (20,), compression="gzip", chunk_rows=500)
            for step in range(3):
                worker.append("x", random.normal(size=(50, 7)))
                worker.append("packed", random.integers(0, 9, (3000, 20)))
                worker.append("label", random.integers(0, 9, 50))
                worker.commit(step=step, receipt=receipt(rank, step))
    (data / "receipts").mkdir()
    for rank in range(12):
        text = json.dumps(receipt(4 + rank, 2 - rank // 10))
        (data / f"receipts/{rank}.json").write_text(text)
    return data


def receipt(rank: int, steps: int) -> DescribedReceipt:
    """Return the receipt of one of 16 ranks, which does not have the names of the shards."""
    counts = (20,) * 100
    dataset = Dataset("0" * 32, sum(counts), tuple(f"shard{i}" for i in range(len(counts))), counts)
    made = Receipt(
        id=f"{rank:032x}",
        rank=rank,
        world_size=16,
        batch_size=4,
        remainder="mask",
        dataset=Dataset(dataset.fingerprint, dataset.records),
        shuffle=False,
        seed=0,
        segments=(Segment(0, 0, steps),),
    )
    return DescribedReceipt(made.to_dict(), lambda: dataset)


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


JOBS: dict[str, Callable[..., Any]] = {
    "audit": lambda data, out, **options: sk.audit([data / "run", data / "receipts"], **options).to_dict(),
    "verify": lambda data, out, **options: sk.verify(data, **options).to_dict(),
    "index": lambda data, out, **options: [
        one.starts.tolist() for one in sk.build_index(sorted(data.glob("*.tfrecord")), **options)
    ],
    "split": lambda data, out, **options: sk.split(
        [*sorted(data.glob("*.tfrecord")), data / "more.tfrecord.gz"],
        out / "split-{shard:03d}",
        shards=13,
        mode="balanced",
        **options,
    ).to_dict(),
    "split gzip": lambda data, out, **options: sk.split(
        sorted(data.glob("*.tfrecord")),
        out / "packed-{shard:03d}",
        shards=50,
        mode="round-robin",
        compression="gzip",
        **options,
    ).to_dict(),
    "merge": lambda data, out, **options: sk.merge(data / "run", out / "all.h5", **options).to_dict(),
    "pack": lambda data, out, **options: sk.pack(
        data / "photos", out / "photos-{shard}-of-{shards}", shards=5, labels_path=out / "labels", **options
    ).to_dict(),
    "repair": lambda data, out, **options: sk.repair(data / "broken", out / "repaired", **options).to_dict(),
    "concat": lambda data, out, **options: sk.concat(
        sorted(data.glob("*.tfrecord")), out / "all", **options
    ).to_dict(),
}


def outcome(name: str, data: Path, out: Path, **options: Any) -> dict[str, Any]:
    """Run a job; return its report and the content of all files, without what differs between two runs."""
    out.mkdir(exist_ok=True)
    report = JOBS[name](data, out, **options)
    text = json.dumps(report, sort_keys=True, default=repr).replace(str(out), "OUT")
    found = json.loads(text)
    if isinstance(found, dict):
        found.pop("seconds", None)
    files = {**contents(out), **{f"data/{key}": value for key, value in contents(data).items()}}
    for index in data.glob("*.skidx"):
        index.unlink()
    return {"report": found, "files": files}


def contents(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): _merged(path)
        if path.suffix == ".h5" and path.parent.name in ("here", "there")
        else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith(".")
    }


def _merged(path: Path) -> str:
    """Return all but the times in the headers of the objects of a merged file."""
    found: dict[str, Any] = {"size": path.stat().st_size}

    def visit(name: str, object: Any) -> None:
        found[name] = sorted((key, repr(value)) for key, value in object.attrs.items())
        if isinstance(object, h5py.Dataset):
            places = [object.id.get_offset()]
            if object.chunks is not None:
                chunks = [object.id.get_chunk_info(number) for number in range(object.id.get_num_chunks())]
                places = [tuple(one) for one in chunks]
            found[f"{name} rows"] = [str(object.dtype), object.shape, repr(object[()].tolist()), places]

    with h5py.File(path) as file:
        file.visititems(visit)
    return repr(found)


def compare(
    name: str, data: Path, folder: Path, executor: Executor, on_progress: Callable[[], object]
) -> None:
    """Compare a job with an executor with the same job without; the progress grows to 100 %."""
    seen: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        if done:
            on_progress()

    here = outcome(name, data, folder / "here")
    there = outcome(name, data, folder / "there", executor=executor, progress=progress)
    assert there == here
    assert len(seen) > 3
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


def make_archive(folder: Path) -> str:
    """Make an archive of shards, of which one is damaged, and return the end of the URLs in it."""
    data = make_data(folder)
    damage(data / "train-00007-of-00060.tfrecord")
    with zipfile.ZipFile(folder / "all.zip", "w") as archive:
        for path in sorted(data.glob("train-*")):
            archive.write(path, path.name)
    return f"::{folder}/all.zip"


def compare_remote(folder: Path, executor: Executor) -> None:
    """Verify URLs by workers whose cache is not that of this process, which is in `folder`."""
    store = make_archive(folder)
    found = sk.verify(f"zip://*.tfrecord{store}", executor=executor)
    assert not (folder / "cache/objects").exists()
    assert [one.path for one in found.findings] == [f"zip://{store}/train-00007-of-00060.tfrecord"]
    assert found == sk.verify(f"zip://*.tfrecord{store}")
    assert str(folder / "cache") not in json.dumps(found.to_dict())


# -- tasks for `Work` ----------------------------------------------------------------------------------


def dies_once(item: WorkFile, tick: Tick) -> str:
    """Kill the worker in the first attempt of the file "kill"."""
    mark = Path(f"{item.path}.mark")
    if item.path.endswith("kill") and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return os.path.basename(item.path)


def dies_always(item: WorkFile, tick: Tick) -> str:
    if item.path.endswith("kill"):
        with open(f"{item.path}.mark", "a") as file:
            file.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return os.path.basename(item.path)


def work_files(folder: Path) -> list[WorkFile]:
    """Make files that count as so large that each is a task."""
    names = [*(f"file{number}" for number in range(10)), "kill", "last"]
    for name in names:
        (folder / name).touch()
    return [WorkFile(str(folder / name), 64 << 20) for name in names]


def killing(pids: Iterator[int]) -> Callable[[], None]:
    """Return a function that kills the next of some processes when it is called for the first time."""
    done: list[int] = []

    def kill() -> None:
        if not done:
            done.append(next(pids))
            os.kill(done[0], signal.SIGKILL)

    return kill


def left_behind(output: str, folder: Path, data: Path) -> tuple[Any, Any, Any]:
    """Return the printed report of a command, without its time, and its files; remove its indexes."""
    report = json.loads(output)
    if isinstance(report, dict):
        report.pop("seconds", None)
    found = report, contents(folder), contents(data)
    for index in data.glob("*.skidx"):
        index.unlink()
    return found

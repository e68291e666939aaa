"""Write the files of tests/data/old that have today's formats.

    python tests/compat/make_old_files.py OUT_DIR

The files in the repository were made by the version that added this script, from its own
``train.tfrecord``: the index, the receipts of the third version, worker files with commit records of the
second one and their merged file, a run whose receipt refers to the description of its data set, the indexes
of a data set and of a remote folder, the file of a collector that was closed, and that of a collector that
was killed, with its redo log and the spill file of its client. The other files of the folder are older.
"""

import contextlib
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import fsspec
import numpy as np

from shardkeep import CollectorError, Loader, World
from shardkeep._core import RecordPositions
from shardkeep.hdf5 import WorkerFile, connect, merge
from shardkeep.tfrecord import ShardWriter, build_index
from shardkeep.tfrecord.index.dataset_file import save_dataset, versions_of
from shardkeep.tfrecord.index.scan import frame_starts

OLD = Path(__file__).parents[1] / "data" / "old"


def write_run(out: Path) -> None:
    """Two ranks read an epoch and commit its receipts."""
    receipts = []
    for rank in range(2):
        loader = Loader(OLD / "train.tfrecord", batch_size=5, world=World(rank, 2), shuffle="global", seed=3)
        with WorkerFile(out / "run-2", World(rank, 2)) as worker:
            for step, batch in enumerate(loader, start=1):
                worker.append("loss", np.full(int(batch["valid"].sum()), step, "<f4"))
                worker.commit(step=step, receipt=loader.receipt())
        receipts.append(loader.receipt())
    (out / "receipts-3.json").write_text(json.dumps(receipts))
    merge(out / "run-2", out / "merged-2.h5")


def write_described_run(out: Path) -> None:
    """Commit the receipt of a data set of many shards, and end the run."""
    data = out / "data"
    data.mkdir()
    with ShardWriter(data / f"{'x' * 60}-{{shard:05d}}", shards=80) as shards:
        for number in range(80):
            shards.write(bytes([number]))
    loader = Loader(data / "x*", batch_size=80, world=World(0, 1))
    with WorkerFile(out / "run-4", World(0, 1)) as worker:
        for batch in loader:
            worker.append("loss", np.float32([len(batch["valid"])]))
        worker.commit(step=1, receipt=loader.receipt())
        worker.finish()
    shutil.rmtree(data)


def write_dataset_index(out: Path) -> None:
    """Store the index of a data set of two shards."""
    paths = [str(out / "train.tfrecord")] * 2
    versions = versions_of(paths)
    assert versions is not None
    time.sleep(2.5)  # it is not stored while a shard could change without another time
    save_dataset(
        str(out / "train.skset"), paths, versions, lambda: iter([RecordPositions(frame_starts(paths))])
    )


def write_folder_index(out: Path) -> None:
    """Store the index of a remote folder of two shards."""
    memory = fsspec.filesystem("memory")
    for name in ("a.tfrecord", "b.tfrecord"):
        memory.pipe_file(f"/old/{name}", (OLD / "train.tfrecord").read_bytes())
    build_index(["memory://old/*.tfrecord"])
    (out / "all.skidx").write_bytes(memory.cat_file("/old/all.skidx"))


def start_collector(path: Path) -> subprocess.Popen[bytes]:
    """Start ``shardkeep collect`` in a process that can be killed."""
    command = [sys.executable, "-m", "shardkeep", "collect", str(path), "--listen", f"ipc://{path}.sock"]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL)


def collect(out: Path, name: str, *, killed: bool) -> None:
    """Send six rows to a collector; if it is killed, three more go to the spill file."""
    collector = start_collector(out / name)
    client = connect(
        f"ipc://{out / name}.sock", World(0, 1), timeout_s=5, on_full="spill", spill_dir=out / "spill"
    )
    client.declare("loss", "<f4", chunk_rows=8)
    client.put("labels", np.arange(3, dtype="<i8"))
    client.set_attribute("note", "größe")
    for first in (0, 3):
        client.append("loss", np.arange(first, first + 3, dtype="<f4"))
        client.flush()
    if killed:
        collector.kill()
        collector.wait()
        client.append("loss", np.arange(6, 9, dtype="<f4"))
        with contextlib.suppress(CollectorError):
            client.close()  # leaves the rows in the spill file
    else:
        client.close()
        collector.terminate()
        collector.wait()


out = Path(sys.argv[1]).absolute()
out.mkdir(parents=True)
shutil.copy2(OLD / "train.tfrecord", out)
build_index(out / "train.tfrecord")
write_run(out)
write_described_run(out)
write_dataset_index(out)
write_folder_index(out)
collect(out, "collected.h5", killed=False)
collect(out, "killed.h5", killed=True)

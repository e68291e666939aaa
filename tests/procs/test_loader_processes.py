"""Loaders in real processes: forked, spawned, killed, short of descriptors, interrupted."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
import types
from pathlib import Path
from typing import Any

import pytest

from shardkeep import plan
from shardkeep.errors import PlanError
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Reader, ShardWriter, Writer
from shardkeep.world import World
from tests.waiting import PATIENCE_S

RECORDS = 3000
X = {"x": FixedLen()}


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("shards")
    with ShardWriter(folder / "{shard}.tfrecord", shards=7) as w:
        for i in range(RECORDS):
            w.write_example({"x": i}, shard=(i * i) % 7)
        return w.paths


def rows_of(loader: Loader) -> list[int]:
    return [x for batch in loader for x in batch["x"][batch["valid"]].tolist()]


def deliver(loader: Loader, out: Any) -> None:
    out.put((rows_of(loader), loader.receipt()))


WAYS: dict[str, dict[str, Any]] = {
    "global": {"shuffle": "global"},
    "blocks": {"shuffle": "blocks"},
    "files": {"shuffle": "blocks", "shard_by": "files", "cycle_length": 2},
}


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("way", ["global", "files", "mixed"])
def test_loader_made_before_a_process_works_in_it(method: str, way: str, paths: list[str]) -> None:
    context: Any = multiprocessing.get_context(method)
    out = context.Queue()
    if way == "mixed":
        loaders: list[Loader] = [
            Loader.mix([(Loader(some, X, 16, World(rank, 4)), 1) for some in (paths[:3], paths[3:])])
            for rank in range(4)
        ]
    else:
        loaders = [Loader(paths, X, 16, World(rank, 4), **WAYS[way]) for rank in range(4)]
    workers = [context.Process(target=deliver, args=(loader, out)) for loader in loaders]
    for worker in workers:
        worker.start()
    got = [out.get(timeout=PATIENCE_S) for _ in workers]
    for worker in workers:
        worker.join(PATIENCE_S)
        assert worker.exitcode == 0
    assert sorted(x for rows, _ in got for x in rows) == list(range(RECORDS))
    assert plan.audit([plan.Receipt.from_dict(r) for _, r in got], epochs=[0]).ok


def run_script(script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    return subprocess.run(command, text=True, timeout=PATIENCE_S, check=False, **options)


def in_child(work: Any) -> int:
    """Run `work` in a forked child; return its exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_parent_and_child_continue_alike_after_fork_in_mid_epoch(paths: list[str], tmp_path: Path) -> None:
    loader = Loader(paths, X, 16, World(), "global", threads=3)
    batches = iter(loader)
    for _ in range(20):
        next(batches)

    def child() -> None:
        (tmp_path / "child").write_text(json.dumps([b["x"].tolist() for b in batches]))

    assert in_child(child) == 0
    rest = [batch["x"].tolist() for batch in batches]
    assert json.loads((tmp_path / "child").read_text()) == rest
    assert len(rest) == len(loader) - 20


def test_worker_of_a_torch_dataloader_is_refused(paths: list[str]) -> None:
    loader = Loader(paths, X, 16, World())

    def child() -> None:
        torch: Any = types.ModuleType("torch.utils.data")
        torch.get_worker_info = lambda: types.SimpleNamespace(id=1, num_workers=2)
        sys.modules["torch.utils.data"] = torch
        with pytest.raises(PlanError, match=r"adapters\.torch\.DataLoader"):
            next(iter(loader))
        torch.get_worker_info = lambda: None
        assert len(list(loader)) == loader.steps_per_epoch

    assert in_child(child) == 0


def test_child_that_deletes_a_running_loader_exits(paths: list[str]) -> None:
    loader = Loader(paths, X, 16, World(), threads=3)
    batches = iter(loader)
    next(batches)
    holder = [batches]

    def child() -> None:
        holder.clear()

    assert in_child(child) == 0
    assert len(list(batches)) == len(loader) - 1


def test_forked_children_each_read_the_whole_file_through_one_reader(paths: list[str]) -> None:
    reader = Reader(paths[0])
    records = iter(reader)
    first = [next(records) for _ in range(10)]
    whole = list(reader)
    assert reader[5] == whole[5]

    def child() -> None:
        assert first + list(records) == whole
        assert reader.read_many(range(len(whole))) == whole

    codes = [in_child(child) for _ in range(4)]
    assert codes == [0] * 4
    assert first + list(records) == whole


def test_writer_refuses_to_write_in_a_forked_child(tmp_path: Path) -> None:
    from shardkeep.errors import LockError

    path = tmp_path / "x"
    with Writer(path) as w:
        w.write(b"parent")

        def child() -> None:
            with pytest.raises(LockError):
                w.write(b"child")
            with pytest.raises(LockError):
                w.close()

        assert in_child(child) == 0
        w.write(b"still")
    assert list(Reader(path)) == [b"parent", b"still"]


KILLED = """
    import json, os, signal, sys
    from shardkeep import files
    from shardkeep.loader import Loader
    from shardkeep.tfrecord import FixedLen
    from shardkeep.world import World

    paths, rank, size, kill_at, resume, folder, way = json.loads(sys.argv[1])
    loader = Loader(paths, {"x": FixedLen()}, 16, World(rank, size), **way)
    if resume:
        loader.load_state_dict(json.load(open(folder + "/state")))
    rows = []
    for step, batch in enumerate(loader, start=1):
        rows += batch["x"][batch["valid"]].tolist()
        if step % 5 == 0:
            with files.publish(f"{folder}/{rank}-{size}", exists="replace") as f:
                f.write(json.dumps([rows, loader.receipt()]).encode())
            if rank == 0 and not resume:
                with files.publish(f"{folder}/state", exists="replace") as f:
                    f.write(json.dumps(loader.state_dict()).encode())
        if step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
    with files.publish(f"{folder}/{rank}-{size}", exists="replace") as f:
        f.write(json.dumps([rows, loader.receipt()]).encode())
"""


@pytest.mark.parametrize("later", [2, 5])
@pytest.mark.parametrize("way", ["global", "files"])
def test_killed_ranks_are_resumed_by_fewer_and_more_ranks(
    later: int, way: str, paths: list[str], tmp_path: Path
) -> None:
    script = textwrap.dedent(KILLED)

    def run(size: int, *, kill_at: int, resume: bool) -> None:
        arguments = [
            json.dumps([paths, rank, size, kill_at, resume, str(tmp_path), WAYS[way]]) for rank in range(size)
        ]
        workers = [subprocess.Popen([sys.executable, "-c", script, one]) for one in arguments]
        want = -signal.SIGKILL if kill_at else 0
        assert [worker.wait(PATIENCE_S) for worker in workers] == [want] * size

    run(3, kill_at=23, resume=False)
    run(later, kill_at=0, resume=True)
    rows: list[int] = []
    receipts = []
    for name in sorted(os.listdir(tmp_path)):
        if name != "state":
            some, receipt = json.loads((tmp_path / name).read_text())
            rows += some
            receipts.append(plan.Receipt.from_dict(receipt))
    assert sorted(rows) == list(range(RECORDS))
    assert plan.audit(receipts, epochs=[0]).ok


@pytest.mark.parametrize("way", [{"shuffle": "global"}, {"shard_by": "files", "cycle_length": 400}])
def test_many_shards_under_a_small_limit(way: dict[str, Any], tmp_path: Path) -> None:
    script = """
        import json, os, sys
        from shardkeep import files
        from shardkeep.loader import Loader
        from shardkeep.tfrecord import FixedLen, ShardWriter
        from shardkeep.world import World

        budget = files.budget()
        assert budget.limit + budget.reserve == 64, budget
        way = json.loads(sys.argv[2])
        loader = Loader(sys.argv[1] + "/*.tfrecord", {"x": FixedLen()}, 50, World(), threads=4, **way)
        rows, most = [], 0
        for batch in loader:
            rows += batch["x"][batch["valid"]].tolist()
            most = max(most, len(os.listdir("/proc/self/fd")))
        assert sorted(rows) == list(range(2000)), len(rows)
        assert most < 64, most
        assert files.budget().peak <= budget.limit
    """
    for i in range(20):
        with ShardWriter(tmp_path / (f"{i:02d}-" + "{shard:02d}.tfrecord"), shards=25) as w:
            for j in range(100):
                w.write_example({"x": i * 100 + j})

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    assert run_script(script, str(tmp_path), json.dumps(way), preexec_fn=limited).returncode == 0


def test_ctrl_c_leaves_the_loader_usable(paths: list[str]) -> None:
    script = """
        import os, signal, sys, threading, time
        from shardkeep.loader import Loader
        from shardkeep.tfrecord import FixedLen
        from shardkeep.world import World

        threads, files = len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
        loader = Loader(sys.argv[1:], {"x": FixedLen()}, 16, World(), "global", threads=2)
        rows = []
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        batches = iter(loader)
        try:
            for batch in batches:
                rows += batch["x"][batch["valid"]].tolist()
                time.sleep(0.01)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        rows += [x for b in batches for x in b["x"][b["valid"]].tolist()]
        assert len(set(rows)) >= 3000 - 16, len(set(rows))
        del batches, loader
        assert len(os.listdir("/proc/self/fd")) == files
        # A joined thread is in the list until the kernel has removed it.
        while len(os.listdir("/proc/self/task")) > threads:
            time.sleep(0.01)
    """
    done = run_script(script, *paths, capture_output=True)
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


@pytest.mark.parametrize("way", list(WAYS))
def test_ctrl_c_during_iteration_leaves_no_thread_and_no_descriptor(way: str, paths: list[str]) -> None:
    script = """
        import json, os, signal, sys, threading, time
        from shardkeep.loader import Loader
        from shardkeep.tfrecord import FixedLen
        from shardkeep.world import World

        def counted():
            return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

        def train(loader):
            for batch in loader:
                if loader.position == 320:
                    assert counted() > before
                    os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.001)

        before = counted()
        loader = Loader(sys.argv[2:], {"x": FixedLen()}, 16, World(), threads=3, **json.loads(sys.argv[1]))
        try:
            train(loader)
        except KeyboardInterrupt:
            pass
        else:
            raise SystemExit("not interrupted")
        # The loader still exists, and holds no resources. A joined thread is in the list of threads
        # until the kernel has removed it.
        while counted()[0] > before[0]:
            time.sleep(0.01)
        assert counted() == before, (counted(), before)
        assert loader.position in (320, 336)
    """
    done = run_script(script, json.dumps(WAYS[way]), *paths, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("way", list(WAYS))
def test_slow_and_fast_consumers_get_equal_batches(way: str, paths: list[str]) -> None:
    seen = []
    for delay_s, prefetch in ((0.0, 1), (0.004, 16), (0.0, 16)):
        loader = Loader(paths, X, 64, World(1, 2), threads=4, prefetch=prefetch, **WAYS[way])
        rows = []
        for batch in loader:
            time.sleep(delay_s)
            rows.append(batch["x"].tolist())
        seen.append(rows)
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0]) == len(Loader(paths, X, 64, World(1, 2), **WAYS[way]))


@pytest.mark.parametrize("way", list(WAYS))
def test_resume_does_not_read_delivered_records(way: str, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "{shard}.tfrecord", shards=4) as w:
        for i in range(400):
            w.write(i.to_bytes(2, "big") * 10_000, shard=i % 4)
    loader = Loader(w.paths, None, 10, World(), **WAYS[way])
    batches = iter(loader)
    for _ in range(38):
        next(batches)
    state = loader.state_dict()
    later = Loader(w.paths, None, 5, World(), **WAYS[way])
    before = bytes_read()
    later.load_state_dict(state)
    records = [batch["record"][i] for batch in later for i in range(5)]
    assert len(set(records)) == 20
    # 20 records of 20 kB, where 400 would be 8 MB.
    assert bytes_read() - before < 2_000_000


def bytes_read() -> int:
    fields = Path("/proc/self/io").read_text(encoding="ascii").split()
    return int(fields[fields.index("rchar:") + 1])


def test_hostile_lengths_under_an_address_space_limit(tmp_path: Path) -> None:
    """Read files with huge claimed lengths in 2 GiB of address space, which a claimed length never fills."""
    import struct

    from shardkeep._core import masked_crc32c

    def header(length: int) -> bytes:
        raw = struct.pack("<Q", length)
        return raw + struct.pack("<I", masked_crc32c(raw))

    for i, claim in enumerate([1 << 35, 1 << 40, (1 << 64) - 1, (1 << 64) - 16]):
        (tmp_path / f"{i}.tfrecord").write_bytes(header(claim) + b"x" * 1000)
    script = """
        import resource, sys
        from shardkeep.errors import TruncatedFileError
        from shardkeep.loader import Loader
        from shardkeep.tfrecord import Reader
        from shardkeep.world import World
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        for path in sys.argv[1:]:
            for work in (lambda p: list(Reader(p)), lambda p: Reader(p)[0], lambda p: Loader(p)):
                try:
                    work(path)
                except TruncatedFileError:
                    continue
                raise SystemExit(path)
    """
    files = sorted(str(path) for path in tmp_path.iterdir())
    assert run_script(script, *files).returncode == 0


def test_killed_writer_leaves_no_shard(tmp_path: Path) -> None:
    script = """
        import sys
        from shardkeep.tfrecord import ShardWriter
        w = ShardWriter(sys.argv[1] + "/{shard}.tfrecord", shards=3)
        i = 0
        while True:
            w.write(b"x" * 100_000)
            i += 1
            if i == 50:
                print("writing", flush=True)
    """
    worker = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "writing\n"
    time.sleep(0.05)
    worker.kill()
    worker.wait(PATIENCE_S)
    worker.stdout.close()
    assert not list(tmp_path.glob("*.tfrecord"))
    with ShardWriter(tmp_path / "{shard}.tfrecord", shards=3) as w:
        w.write(b"again")
    # The next writer also removes the temporary files of the killed one.
    left = [name for name in os.listdir(tmp_path) if not name.endswith(".lock")]
    assert sorted(left) == ["0.tfrecord", "1.tfrecord", "2.tfrecord"]

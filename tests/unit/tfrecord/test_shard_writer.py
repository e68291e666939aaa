"""Sets of shards that appear together.

Covers `shardkeep.tfrecord.shard_names` and `shardkeep.tfrecord.shard_sinks`.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import (
    BudgetError,
    DurabilityError,
    ExistsError,
    LockError,
    LockTimeoutError,
    NotFoundError,
    PlanError,
)
from shardkeep.files.budget import Budget
from shardkeep.tfrecord import Reader, ShardWriter, Writer, decode_example, shard_sinks, shard_writer
from shardkeep.tfrecord.shard_writer import shard_of_key
from tests.descriptors import few_descriptors, open_descriptors
from tests.waiting import PATIENCE_S


def written(w: ShardWriter) -> list[list[bytes]]:
    return [list(Reader(path)) for path in w.paths]


@settings(max_examples=25)
@given(
    records=st.lists(st.binary(max_size=60), max_size=30),
    limit=st.integers(1, 200),
    compression=st.sampled_from([None, "gzip"]),
)
def test_rolling_by_bytes(
    records: list[bytes], limit: int, compression: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("s")
    with ShardWriter(folder / "{shard}-of-{shards}", shard_bytes=limit, compression=compression) as w:
        for record in records:
            w.write(record)
    parts = written(w)
    assert [record for part in parts for record in part] == records
    assert list(map(len, parts)) == w.records
    assert all(parts) or not records
    sizes = [sum(len(record) + 16 for record in part) for part in parts]
    assert all(size <= limit or len(part) == 1 for size, part in zip(sizes, parts, strict=True))
    for size, after in zip(sizes, parts[1:], strict=False):
        assert size + len(after[0]) + 16 > limit
    assert sorted(os.listdir(folder)) == sorted(f"{i}-of-{len(parts)}" for i in range(len(parts)))


def test_rolling_by_records(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "{shard:02d}-of-{shards:02d}", shard_records=3) as w:
        assert (w.paths, w.records) == ([], [0])
        for i in range(7):
            w.write(b"%d" % i)
        assert not [name for name in os.listdir(tmp_path) if name[0] == "0"]
    assert written(w) == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6"]]
    assert sorted(os.listdir(tmp_path)) == ["00-of-03", "01-of-03", "02-of-03"]


def test_rolling_without_records_is_one_empty_shard(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "{shard}-of-{shards}", shard_bytes=100) as w:
        pass
    assert written(w) == [[]]
    assert os.listdir(tmp_path) == ["0-of-1"]


def test_an_exception_leaves_no_rolled_shard(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), ShardWriter(tmp_path / "{shard}", shard_records=1) as w:
        for _ in range(5):
            w.write(b"a")
        raise RuntimeError
    w = ShardWriter(tmp_path / "{shard}", shard_records=1)
    w.write(b"a")
    w.abort()
    assert os.listdir(tmp_path) == []


def test_a_name_that_is_taken_stops_all_rolled_shards(tmp_path: Path) -> None:
    (tmp_path / "2").write_bytes(b"mine")
    with pytest.raises(ExistsError), ShardWriter(tmp_path / "{shard}", shard_records=1) as w:
        for _ in range(4):
            w.write(b"a")
    assert os.listdir(tmp_path) == ["2"]
    assert (tmp_path / "2").read_bytes() == b"mine"
    with ShardWriter(tmp_path / "{shard}", shard_records=1, exists="replace") as w:
        for _ in range(4):
            w.write(b"a")
    assert written(w) == [[b"a"]] * 4


def test_records_of_a_key_stay_together(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "{shard}", shards=5) as w:
        for i in range(300):
            w.write_example({"user": i % 40}, key=f"user-{i % 40}")
    seen: dict[int, set[int]] = {}
    for shard, records in enumerate(written(w)):
        for record in records:
            seen.setdefault(int(decode_example(record)["user"][0]), set()).add(shard)
    assert len(seen) == 40
    assert all(len(places) == 1 for places in seen.values())
    assert {shard for places in seen.values() for shard in places} == set(range(5))


def test_the_shard_of_a_key_never_changes() -> None:
    # Written down: sets that were written by an older version must be found again.
    assert [shard_of_key(key, 1000) for key in ("", "user-17", "é", b"\xff")] == KEYS
    code = "from shardkeep.tfrecord.shard_writer import shard_of_key; print(shard_of_key('user-17', 1000))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
        timeout=PATIENCE_S,
    )
    assert int(done.stdout) == KEYS[1]


KEYS = [756, 871, 963, 487]


def test_keys_are_spread_evenly() -> None:
    counts = [0] * 16
    for i in range(16_000):
        counts[shard_of_key(f"user-{i}", 16)] += 1
    assert 850 < min(counts) <= max(counts) < 1150


@pytest.mark.parametrize(
    "options",
    [
        {"shards": 2, "shard_bytes": 3},
        {"shard_records": 2, "shard_bytes": 3},
        {"shards": 0},
        {"shard_bytes": 0},
        {"shard_records": -1},
        {"shards": 2, "compression": "lzma"},
        {"shards": 2, "exists": "append"},
    ],
)
def test_contradictory_arguments_are_refused(options: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(PlanError):
        ShardWriter(tmp_path / "{shard}", **options)
    assert os.listdir(tmp_path) == []


def test_rolled_shards_need_different_names(tmp_path: Path) -> None:
    for pattern in ("same", "{shard", "{other}", "{shards}"):
        with pytest.raises(PlanError):
            ShardWriter(tmp_path / pattern, shard_records=1)
    with pytest.raises(PlanError, match="folder"):
        ShardWriter(tmp_path / "{shards}/{shard}", shard_records=1)
    with pytest.raises(NotFoundError):
        ShardWriter(tmp_path / "no/{shard}", shard_records=1)
    assert os.listdir(tmp_path) == []


def test_each_shard_may_have_its_own_folder(tmp_path: Path) -> None:
    for i in range(2):
        (tmp_path / str(i)).mkdir()
    for name, options in (("fixed", {"shards": 2}), ("rolled", {"shard_records": 1})):
        with ShardWriter(tmp_path / f"{{shard}}/{name}", **options) as w:  # type: ignore[arg-type]
            w.write(b"a")
            w.write(b"b")
        assert written(w) == [[b"a"], [b"b"]]


def test_invalid_shard_or_key_is_refused(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "r{shard}", shard_records=1) as w:
        for wrong in ({"shard": 0}, {"key": "a"}):
            with pytest.raises(PlanError, match="fixed number"):
                w.write(b"", **wrong)  # type: ignore[arg-type]
    with ShardWriter(tmp_path / "f{shard}", shards=2) as w:
        with pytest.raises(PlanError, match="not both"):
            w.write(b"", shard=0, key="a")
        with pytest.raises(PlanError, match="shard must be from 0 to 1"):
            w.write(b"", shard=-1)
        w.write(memoryview(b"abc"))
    assert written(w) == [[b"abc"], []]
    with pytest.raises(PlanError, match="closed"):
        w.write(b"")
    with pytest.raises(PlanError, match="closed"):
        w.add_file(tmp_path / "x", b"")


def test_another_file_appears_with_the_shards(tmp_path: Path) -> None:
    for options in ({"shards": 2}, {"shard_records": 1}):
        folder = tmp_path / next(iter(options))
        folder.mkdir()
        with ShardWriter(folder / "{shard}", **options) as w:  # type: ignore[arg-type]
            w.write(b"a")
            w.add_file(folder / "labels.json", b"[]")
            w.write(b"b")
        assert sorted(os.listdir(folder)) == ["0", "1", "labels.json"]
        assert (folder / "labels.json").read_bytes() == b"[]"
        assert written(w) == [[b"a"], [b"b"]]
        with pytest.raises(ExistsError), ShardWriter(folder / "x{shard}", **options) as w:  # type: ignore[arg-type]
            w.add_file(folder / "labels.json", b"[]")
        assert sorted(os.listdir(folder)) == ["0", "1", "labels.json"]


def test_two_sets_of_one_pattern_exclude_each_other(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "{shard:05d}", shards=2):
        for options in ({"shards": 3}, {"shard_bytes": 10}):
            with pytest.raises(LockTimeoutError) as caught:
                ShardWriter(tmp_path / "{shard}", **options)  # type: ignore[arg-type]
            assert caught.value.holder is not None
            assert caught.value.holder["pid"] == os.getpid()
    assert sorted(os.listdir(tmp_path)) == ["00000", "00001"]


def test_threads_write_whole_records(tmp_path: Path) -> None:
    for options in ({"shards": 3}, {"shard_records": 7}, {"shard_bytes": 3000}):
        with ShardWriter(tmp_path / f"{next(iter(options))}{{shard}}", **options) as w:  # type: ignore[arg-type]

            def work(k: int, w: ShardWriter = w) -> None:
                for i in range(200):
                    w.write(b"%d:" % k + bytes([i]) * i)

            threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len({record for part in written(w) for record in part}) == 800


def reserve(monkeypatch: pytest.MonkeyPatch, descriptors: int) -> None:
    monkeypatch.setattr(shard_writer, "budget", lambda: Budget(limit=3, reserve=descriptors, open=0, peak=0))


def test_more_shards_than_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_sinks, "_MOST_HELD_BYTES", 5000)
    reserve(monkeypatch, 10)
    with few_descriptors(12), ShardWriter(tmp_path / "{shard:03d}", shards=100) as w:
        for i in range(1000):
            w.write(b"%d" % i)
        # What does not fit into memory is in the files already.
        assert sum(os.path.getsize(tmp_path / name) for name in os.listdir(tmp_path)) > 10_000
    assert written(w) == [[b"%d" % i for i in range(shard, 1000, 100)] for shard in range(100)]
    assert w.records == [10] * 100


def test_more_compressed_shards_than_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve(monkeypatch, 10)
    with pytest.raises(BudgetError, match="without compression"):
        ShardWriter(tmp_path / "{shard}", shards=6, compression="gzip")
    with ShardWriter(tmp_path / "{shard}", shards=5, compression="gzip") as w:
        w.write(b"a")
    assert gzip.decompress((tmp_path / "0").read_bytes())
    assert written(w)[0] == [b"a"]
    with ShardWriter(tmp_path / "r{shard}", shard_records=1, compression="gzip") as w:
        for _ in range(30):
            w.write(b"a")
    assert written(w) == [[b"a"]] * 30


@pytest.mark.parametrize("descriptors", [2, 100])
def test_a_forked_child_is_refused(descriptors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reserve(monkeypatch, descriptors)
    with ShardWriter(tmp_path / "{shard}", shards=3) as w:
        w.write(b"mine")
        child = os.fork()
        if child == 0:
            status = 1
            try:
                w.write(b"yours")
            except LockError:
                status = 0
                with contextlib.suppress(LockError):
                    w.close()
                    status = 2
                w.abort()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
    assert written(w) == [[b"mine"], [], []]


@pytest.mark.parametrize("options", [{"shards": 2}, {"shard_records": 2}])
def test_forked_child_does_not_wait_for_a_thread_of_its_parent(options: Any, tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "{shard}", **options) as w:
        with w._mutex:  # as a thread in the middle of a write has it
            child = os.fork()
            if child == 0:
                status = 1
                signal.alarm(200)
                try:
                    for call in (lambda: w.write(b"yours"), w.close, lambda: w.add_file(tmp_path / "x", b"")):
                        with pytest.raises(LockError):
                            call()
                    w.abort()
                    status = 0
                finally:
                    os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        w.write(b"mine")
    assert written(w)[0] == [b"mine"]


def test_failed_additional_file_publishes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    w = ShardWriter(tmp_path / "{shard}", shards=2)
    with monkeypatch.context() as patch:
        patch.setattr(
            "shardkeep.tfrecord.shard_writer.open_temporary", lambda _, flags: os.open("/dev/full", flags)
        )
        with pytest.raises(DurabilityError):
            w.add_file(tmp_path / "labels.json", b"[]")
    with pytest.raises(DurabilityError):
        w.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("descriptors", [2, 100])
def test_full_disk_publishes_nothing(
    descriptors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(monkeypatch, descriptors)
    w = ShardWriter(tmp_path / "{shard}", shards=3)
    w.write(b"a")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DurabilityError, match="free space"):
        w.close()
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("descriptors", [2, 100])
def test_write_during_close_is_refused(
    descriptors: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve(monkeypatch, descriptors)
    for end in (ShardWriter.close, ShardWriter.abort):
        w = ShardWriter(tmp_path / f"{end.__name__}{{shard}}", shards=3)
        w.write(b"a")
        kind: Any = shard_sinks.BufferedSink if descriptors == 2 else shard_sinks.OpenSink
        write = kind.write

        def late(sink: Any, record: bytes, w: ShardWriter = w, end: Any = end, write: Any = write) -> None:
            end(w)
            write(sink, record)

        with monkeypatch.context() as patch:
            patch.setattr(kind, "write", late)
            with pytest.raises(PlanError, match="closed"):
                w.write(b"b", shard=0)
        assert end is ShardWriter.abort or written(w) == [[b"a"], [], []]
    assert sorted(os.listdir(tmp_path)) == ["close0", "close1", "close2"]


def test_an_interrupt_between_two_records_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_sinks, "_MOST_HELD_BYTES", 1000)
    reserve(monkeypatch, 2)
    w = ShardWriter(tmp_path / "{shard}", shards=3)
    with monkeypatch.context() as patch:

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(shard_sinks.RecordSink, "write", interrupted)
        with pytest.raises(KeyboardInterrupt):
            w.write(b"a" * 2000)
    for call in (lambda: w.write(b"b"), w.close):
        with pytest.raises(DurabilityError, match="KeyboardInterrupt"):
            call()
    assert os.listdir(tmp_path) == []


def test_change_of_directory_does_not_move_the_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    w = ShardWriter("{shard}-of-{shards}", shard_records=1)
    w.write(b"a")
    monkeypatch.chdir(tmp_path / "other")
    w.write(b"b")
    w.close()
    assert os.listdir(tmp_path / "other") == []
    assert list(Reader(tmp_path / "0-of-2")) + list(Reader(tmp_path / "1-of-2")) == [b"a", b"b"]


def test_descriptors_are_released(tmp_path: Path) -> None:
    before = open_descriptors()
    for i in range(3):
        with ShardWriter(tmp_path / f"a{i}-{{shard}}", shards=4) as w:
            w.write(b"a")
        ShardWriter(tmp_path / f"b{i}-{{shard}}", shards=4).abort()
        with ShardWriter(tmp_path / f"c{i}-{{shard}}", shard_records=1) as w:
            for _ in range(5):
                w.write(b"a")
        with pytest.raises(ExistsError):
            ShardWriter(tmp_path / f"a{i}-{{shard}}", shards=4)
    assert not open_descriptors() - before


def test_writer_next_to_a_set_needs_its_own_lock(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "{shard}", shards=2) as w:
        with Writer(tmp_path / "1") as other:
            other.write(b"theirs")
        w.write(b"a")
        with pytest.raises(ExistsError):
            w.close()
    assert os.listdir(tmp_path) == ["1"]
    assert list(Reader(tmp_path / "1")) == [b"theirs"]

"""Splits of every mode, and copies that go wrong.

Covers `shardkeep.jobs.division.divide`, `shardkeep.jobs.division.frames`,
`shardkeep.jobs.division.packed_frames`, `shardkeep.jobs.division.source` and
`shardkeep.jobs.division.targets`.
"""

from __future__ import annotations

import gzip
import json
import os
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    DurabilityError,
    ExistsError,
    FormatError,
    InternalError,
    LockTimeoutError,
    NotFoundError,
    PlanError,
    TruncatedFileError,
)
from shardkeep.jobs import SplitReport, concat, split
from shardkeep.jobs.division import divide as division
from shardkeep.jobs.division import frames, packed_frames
from shardkeep.tfrecord import Reader, ShardWriter, Writer
from tests.descriptors import few_descriptors, open_descriptors
from tests.odd_files import GOOD, RECORDS
from tests.unit.tfrecord.test_reader import frame

MODES = ["contiguous", "round-robin", "balanced"]


def write(path: Path, records: list[bytes], compression: str | None = None) -> Path:
    with Writer(path, compression=compression) as w:
        for record in records:
            w.write(record)
    return path


def contents(report: SplitReport) -> list[list[bytes]]:
    return [list(Reader(output.path)) for output in report.outputs]


def data_of(folder: Path) -> list[str]:
    return sorted(name for name in os.listdir(folder) if not name.endswith(".skidx"))


@pytest.fixture(autouse=True)
def _in_threads_and_in_small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut finely, so that a few kilobytes have all the seams of gigabytes."""
    monkeypatch.setattr(division, "_INLINE_BYTES", 500)
    monkeypatch.setattr(division, "_PART_BYTES", 900)
    monkeypatch.setattr(division, "_BLOCK_BYTES", 300)
    monkeypatch.setattr(division, "_SMALLEST_WINDOW_BYTES", 700)
    monkeypatch.setattr(division, "_LARGEST_WINDOW_BYTES", 700)
    monkeypatch.setattr(frames, "_HUGE_BYTES", 600)
    monkeypatch.setattr(frames, "_CHUNK_BYTES", 250)
    monkeypatch.setattr(frames, "_HELD_BYTES", 400)


FILES = st.lists(st.lists(st.binary(max_size=900), max_size=12), min_size=1, max_size=3)
COMPRESSIONS = st.sampled_from([None, None, "gzip", "zlib"])


@pytest.mark.filterwarnings("ignore:.*(shards have no record|of a shard)")
@settings(max_examples=40)
@given(
    files=FILES,
    inputs=st.lists(COMPRESSIONS, min_size=3, max_size=3),
    output=COMPRESSIONS,
    shards=st.integers(1, 9),
    mode=st.sampled_from(MODES),
    verify=st.booleans(),
)
def test_nothing_is_lost_and_order_is_kept(
    files: list[list[bytes]],
    inputs: list[str | None],
    output: str | None,
    shards: int,
    mode: Any,
    verify: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("s")
    paths = [write(folder / f"in{i}", records, inputs[i]) for i, records in enumerate(files)]
    everything = [record for records in files for record in records]
    report = split(paths, folder / "out-{shard}", shards=shards, mode=mode, compression=output, verify=verify)
    parts = contents(report)
    assert (len(parts), report.records) == (shards, len(everything))
    assert [len(part) for part in parts] == [one.records for one in report.outputs]
    assert [os.path.getsize(one.path) for one in report.outputs] == [one.bytes for one in report.outputs]
    if mode == "contiguous":
        assert [record for part in parts for record in part] == everything
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    elif mode == "round-robin":
        assert parts == [everything[shard::shards] for shard in range(shards)]
    else:
        assert Counter(record for part in parts for record in part) == Counter(everything)
        loads = [sum(len(record) + 16 for record in part) for part in parts]
        assert max(loads) - min(loads) <= max((len(record) + 16 for record in everything), default=0)
        for part in parts:  # input order inside each
            places = iter(everything)
            assert all(record in places for record in part)
    again = concat([one.path for one in report.outputs], folder / "again")
    assert again.digest == report.digest
    assert os.listdir(folder).count("out-0") == 1
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


@pytest.mark.filterwarnings("ignore:.*(shards have no record|of a shard)")
@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 300), max_size=40),
    limit=st.integers(1, 700),
    mode=st.sampled_from(["contiguous", "balanced"]),
)
def test_no_shard_is_longer_than_asked(
    sizes: list[int], limit: int, mode: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("s")
    records = [bytes([i % 256]) * size for i, size in enumerate(sizes)]
    report = split(write(folder / "in", records), folder / "{shard}-{shards}", shard_bytes=limit, mode=mode)
    assert Counter(r for part in contents(report) for r in part) == Counter(records)
    assert all(one.bytes <= limit or one.records == 1 for one in report.outputs)
    if mode == "contiguous":
        # None could have taken the first record of the next.
        for one, after in zip(report.outputs, contents(report)[1:], strict=False):
            assert one.bytes + len(after[0]) + 16 > limit


@pytest.mark.parametrize("mode", ["contiguous", "round-robin"])
def test_by_records(mode: Any, tmp_path: Path) -> None:
    records = [b"%d" % i for i in range(23)]
    report = split(write(tmp_path / "in", records), tmp_path / "{shard}-{shards}", shard_records=5, mode=mode)
    assert [one.records for one in report.outputs] == (
        [5, 5, 5, 5, 3] if mode == "contiguous" else [5, 5, 5, 4, 4]
    )
    assert Path(report.outputs[0].path).name == "0-5"


def test_frames_are_copied_as_they_are(tmp_path: Path) -> None:
    records = [bytes([i]) * (i * 37 % 500) for i in range(60)]
    path = write(tmp_path / "in", records)
    report = split(path, tmp_path / "{shard}", shards=4)
    assert b"".join(Path(one.path).read_bytes() for one in report.outputs) == path.read_bytes()
    assert report.bytes == path.stat().st_size
    dealt = split(path, tmp_path / "r{shard}", shards=4, mode="round-robin")
    assert Path(dealt.outputs[1].path).read_bytes() == b"".join(map(frame, records[1::4]))


def test_same_input_produces_the_same_files(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [bytes([i]) * (i * 37 % 500) for i in range(200)])
    for name in ("a", "b"):
        split(path, tmp_path / (name + "{shard}"), shards=7, mode="balanced")
    for shard in range(7):
        assert (tmp_path / f"a{shard}").read_bytes() == (tmp_path / f"b{shard}").read_bytes()


@pytest.mark.filterwarnings("ignore:.*(shards have no record|of a shard)")
def test_no_records_at_all(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [])
    assert contents(split(path, tmp_path / "a{shard}", shards=3)) == [[], [], []]
    for i, options in enumerate([{"shard_bytes": 10}, {"shard_records": 10}]):
        assert contents(split(path, tmp_path / f"b{i}{{shard}}", **options)) == [[]]  # type: ignore[arg-type]
    assert contents(concat(path, tmp_path / "c", compression="gzip")) == [[]]


def damaged(path: Path, record: int, how: str) -> int:
    """Damage one of the records of 100 bytes; return the offset of its frame."""
    offset = record * 116
    content = bytearray(path.read_bytes())
    if how == "cut":
        del content[offset + 50 :]
    else:
        content[offset + {"payload": 40, "footer": 114, "length": 2}[how]] ^= 4
    path.write_bytes(content)
    return offset


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("how", ["payload", "footer", "length", "cut"])
def test_damage_is_named_and_nothing_is_left(how: str, mode: Any, tmp_path: Path) -> None:
    paths = [write(tmp_path / name, [bytes([i]) * 100 for i in range(40)]) for name in ("a", "b")]
    offset = damaged(paths[1], 23, how)
    kind = TruncatedFileError if how == "cut" else CorruptRecordError
    for compression in (None, "gzip"):
        with pytest.raises(kind) as caught:
            split(paths, tmp_path / "out{shard}", shards=3, mode=mode, compression=compression)
        assert (caught.value.path, caught.value.record, caught.value.offset_bytes) == (
            str(paths[1]),
            23,
            offset,
        )
    assert data_of(tmp_path) == ["a", "b"]


def test_first_of_several_damages_is_raised(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [bytes([i]) * 100 for i in range(90)])
    for record in (80, 30, 60):
        damaged(path, record, "payload")
    for _ in range(5):
        with pytest.raises(CorruptRecordError) as caught:
            split(path, tmp_path / "{shard}", shards=3, mode="round-robin")
        assert caught.value.record == 30


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_a_damaged_compressed_file(compression: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a", [os.urandom(100) for i in range(40)], compression)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TruncatedFileError):
        split(path, tmp_path / "{shard}", shards=3)
    inside = bytearray(b"".join(frame(bytes([i]) * 100) for i in range(40)))
    inside[116 * 7 + 50] ^= 1
    path.write_bytes((gzip if compression == "gzip" else zlib).compress(bytes(inside)))
    for packing in (None, "gzip"):
        with pytest.raises(CorruptRecordError) as caught:
            split(path, tmp_path / "{shard}", shards=3, compression=packing)
        assert (caught.value.path, caught.value.record) == (str(path), 7)
    assert data_of(tmp_path) == ["a"]


def test_without_verify_payloads_pass(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [bytes([i]) * 100 for i in range(40)])
    damaged(path, 23, "payload")
    report = split(path, tmp_path / "{shard}", shards=3, verify=False)
    assert not report.verified
    assert b"".join(Path(one.path).read_bytes() for one in report.outputs) == path.read_bytes()


def test_other_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "page").write_text("<!DOCTYPE html>")
    with pytest.raises(FormatError, match="HTML"):
        split(tmp_path / "page", tmp_path / "{shard}", shards=2)
    with pytest.raises(NotFoundError):
        split(tmp_path / "gone", tmp_path / "{shard}", shards=2)
    with pytest.raises(NotFoundError):
        split(tmp_path / "gone*", tmp_path / "{shard}", shards=2)
    assert data_of(tmp_path) == ["page"]


@pytest.mark.filterwarnings("ignore:.*(shards have no record|of a shard)")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "one of shards="),
        ({"shards": 2, "shard_bytes": 9}, "one of shards="),
        ({"shards": 0}, "shards must be from 1"),
        ({"shard_records": 0}, "at least"),
        ({"shards": 2, "mode": "random"}, "contiguous"),
        ({"shard_bytes": 9, "mode": "round-robin"}, "is not supported by"),
        ({"shard_records": 9, "mode": "balanced"}, "is not supported by"),
        ({"shards": 2, "compression": "lzma"}, "lzma"),
        ({"shards": 2, "exists": "append"}, "append"),
    ],
)
def test_contradictions(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "in", [b"a"])
    with pytest.raises(PlanError, match=message):
        split(path, tmp_path / "{shard}", **options)
    assert data_of(tmp_path) == ["in"]


def test_a_pattern_that_names_no_shards(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [b"a", b"b"])
    for pattern in ("same", "{shard", "{other}"):
        with pytest.raises(PlanError):
            split(path, tmp_path / pattern, shards=2)
    with pytest.raises(PlanError):
        split(path, tmp_path / "same", shard_records=1)


def test_nothing_is_overwritten_unless_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [b"a", b"b"])
    (tmp_path / "1").write_bytes(b"mine")
    with pytest.raises(ExistsError):
        split(path, tmp_path / "{shard}", shards=2)
    assert data_of(tmp_path) == ["1", "in"]
    assert (tmp_path / "1").read_bytes() == b"mine"
    split(path, tmp_path / "{shard}", shards=2, exists="replace")
    assert list(Reader(tmp_path / "1")) == [b"b"]


def test_an_input_may_be_replaced(tmp_path: Path) -> None:
    paths = [write(tmp_path / name, [name.encode()] * 50) for name in ("a", "b")]
    concat(paths, paths[0], exists="replace")
    assert list(Reader(paths[0])) == [b"a"] * 50 + [b"b"] * 50


def test_two_runs_do_not_mix(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [b"a", b"b"])
    with (
        ShardWriter(tmp_path / "{shard:03d}", shards=2),
        pytest.raises(LockTimeoutError),
    ):
        split(path, tmp_path / "{shard:03}", shards=2)
    with Writer(tmp_path / "out"), pytest.raises(LockTimeoutError):
        concat(path, tmp_path / "out")


@pytest.mark.parametrize("mode", MODES)
def test_few_descriptors_for_many_shards(mode: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "in", [bytes([i % 256]) * 40 for i in range(2000)])
    here = len(open_descriptors())
    with few_descriptors(20):
        report = split(path, tmp_path / "{shard}", shards=300, mode=mode)
    assert sum(map(len, contents(report))) == 2000
    assert len(open_descriptors()) <= here + 2


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_any_executor_does_the_work(compression: str | None, tmp_path: Path) -> None:
    path = write(tmp_path / "in", [bytes([i % 256]) * (i % 90) for i in range(500)])
    packed = write(tmp_path / "packed", [b"z"] * 30, "zlib")
    pools: list[Callable[[], Any]] = [
        lambda: ThreadPoolExecutor(3),
        lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")),
    ]
    for i, pool in enumerate(pools):
        with pool() as executor:
            report = split(
                [path, packed],
                tmp_path / f"{i}-{{shard}}",
                shards=20,
                mode="round-robin",
                compression=compression,
                executor=executor,
            )
        assert report.digest == concat([path, packed], tmp_path / f"all{i}").digest


def test_a_unit_may_run_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Dask and Ray do when a worker dies; also after half of it was done."""
    path = write(tmp_path / "in", [bytes([i % 256]) * (i % 90) for i in range(500)])

    class Twice(ThreadPoolExecutor):
        def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Any:
            super().submit(function, *arguments).result()
            return super().submit(function, *arguments)

    with Twice(1) as executor:
        for packing in (None, "gzip"):
            report = split(
                path,
                tmp_path / f"{packing}{{shard}}",
                shards=4,
                mode="balanced",
                compression=packing,
                executor=executor,
            )
            assert sum(map(len, contents(report))) == 500


def test_progress_ends_at_the_end(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [bytes([i % 256]) * (i % 90) for i in range(500)])
    seen: list[tuple[int, int]] = []
    split(path, tmp_path / "{shard}", shards=4, progress=lambda *done: seen.append(done))
    assert len(seen) > 5
    assert seen == sorted(seen)
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


def test_an_error_of_the_caller_leaves_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [bytes([i % 256]) * (i % 90) for i in range(500)])

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        split(path, tmp_path / "{shard}", shards=4, progress=stop)
    assert data_of(tmp_path) == ["in"]


# -- what a copy must notice ---------------------------------------------------------------------------


def astray(monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes]) -> None:
    """Let one write store something else than it was given."""
    real, once = os.pwrite, iter([True])

    def pwrite(fd: int, data: Any, offset: int) -> int:
        if next(once, False):
            real(fd, change(bytes(data)), offset)
            return len(data)
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", pwrite)


SAME_SIZE = [bytes([i]) * 100 for i in range(50)]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[116:232] + data[:116] + data[232:],  # two records change places
        lambda data: data[:116] + data[:116] + data[232:],  # one comes twice, another is lost
        lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:],
        lambda data: b"",
        lambda data: b"\0" * len(data),
    ],
)
def test_writes_that_go_astray(
    change: Callable[[bytes], bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "in", SAME_SIZE)
    astray(monkeypatch, change)
    with pytest.raises(CorruptDataError, match="are not those read"):
        split(path, tmp_path / "{shard}", shards=2)
    assert data_of(tmp_path) == ["in"]


def test_a_file_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "in", SAME_SIZE)

    def grow(done: int, total: int) -> None:
        with path.open("ab") as file:
            file.write(frame(b"one more"))

    with pytest.raises(CorruptDataError, match="changed while it was read"):
        split(path, tmp_path / "{shard}", shards=2, progress=grow)

    def cut(done: int, total: int) -> None:
        if done:  # after the scan
            os.truncate(path, 117)

    with pytest.raises(CorruptDataError, match="became shorter"):
        split(path, tmp_path / "{shard}", shards=2, progress=cut)
    assert data_of(tmp_path) == ["in"]


@pytest.mark.parametrize("records", [[b"x" * 100] * 60, [b"x" * 100] * 40, [b"y"] * 50])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_compressed_file_that_is_replaced_meanwhile(
    records: list[bytes], compression: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "in", SAME_SIZE, "gzip")
    name = "_plain_tasks" if compression is None else "_packed_tasks"
    real = getattr(division, name)

    def tasks(*arguments: Any) -> Iterator[Any]:
        os.replace(write(tmp_path / "new", records, "gzip"), path)
        yield from real(*arguments)

    monkeypatch.setattr(division, name, tasks)
    with pytest.raises(CorruptDataError, match="changed while it was read"):
        split(path, tmp_path / "{shard}", shards=2, compression=compression)
    assert data_of(tmp_path) == ["in"]


def test_a_compressed_shard_that_is_not_what_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "in", SAME_SIZE)
    for change in (
        lambda records: records[1:],
        lambda records: [*records, records[0]],
        lambda records: records[::-1],
    ):

        def reader(path: str, change: Any = change, **options: Any) -> list[bytes]:
            found: list[bytes] = change(list(Reader(path, **options)))
            return found

        monkeypatch.setattr(packed_frames, "Reader", reader)
        with pytest.raises(CorruptDataError, match="are not those read"):
            split(path, tmp_path / "{shard}", shards=2, compression="gzip")
    assert data_of(tmp_path) == ["in"]


def test_no_thread_writes_after_a_failure(tmp_path: Path) -> None:
    path = write(tmp_path / "in", SAME_SIZE)
    damaged(path, 1, "payload")
    running = []

    class Slow(ThreadPoolExecutor):
        def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Any:
            def slowly() -> Any:
                running.append(1)
                time.sleep(0.2 if len(running) > 1 else 0.0)
                try:
                    return function(*arguments)
                finally:
                    running.pop()

            return super().submit(slowly)

    with Slow(3) as executor:
        with pytest.raises(CorruptRecordError):
            split(path, tmp_path / "{shard}", shards=2, executor=executor)
        assert running == []


def test_a_task_that_is_lost_or_done_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "in", SAME_SIZE)
    real = division._run
    for change in (
        lambda done: done[1:],
        lambda done: [*done, done[0]],
        lambda done: [replace(done[0], written=done[0].written + 1), *done[1:]],
    ):

        def run(*arguments: Any, change: Any = change) -> Any:
            return change(real(*arguments))

        monkeypatch.setattr(division, "_run", run)
        with pytest.raises(InternalError, match="records were copied"):
            split(path, tmp_path / "{shard}", shards=2)
    assert data_of(tmp_path) == ["in"]


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "in", SAME_SIZE)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DurabilityError, match="free space"):
        split(path, tmp_path / "{shard}", shards=2)
    assert data_of(tmp_path) == ["in"]


def test_short_writes_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "in", [bytes([i]) * 9000 for i in range(40)])
    monkeypatch.setattr(division, "_SMALLEST_WINDOW_BYTES", 200_000)
    monkeypatch.setattr(division, "_LARGEST_WINDOW_BYTES", 200_000)
    monkeypatch.setattr(frames, "_HUGE_BYTES", 1 << 20)
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[: max(1, len(data) // 2)], at))
    monkeypatch.setattr(os, "pwritev", lambda fd, some, at: pwritev(fd, [some[0][:100]], at))
    report = split(path, tmp_path / "{shard}", shards=3, mode="round-robin")
    assert contents(report)[2] == [bytes([i]) * 9000 for i in range(2, 40, 3)]


def test_digests_tell_sets_of_records_apart(tmp_path: Path) -> None:
    records = [bytes([i]) * (i % 7) for i in range(50)]
    digests = set()
    for i, some in enumerate([records, records[1:], [*records, b""], [*records[:-1], b"\1"]]):
        digests.add(concat(write(tmp_path / f"in{i}", some), tmp_path / f"out{i}").digest)
        shuffled = [some[k] for k in np.random.default_rng(0).permutation(len(some))]
        digests.add(concat(write(tmp_path / f"x{i}", shuffled), tmp_path / f"y{i}").digest)
    assert len(digests) == 4


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("mode", ["contiguous", "round-robin"])
def test_damage_is_skipped_or_repaired(tmp_path: Path, mode: Any, compression: str | None) -> None:
    flip, torn, packed = (tmp_path / name for name in ("flip", "torn", "packed"))
    flip.write_bytes(GOOD[:700] + bytes([GOOD[700] ^ 1]) + GOOD[701:])
    torn.write_bytes(GOOD[:432] + bytes(1024) + GOOD[1456:])
    packed.write_bytes(gzip.compress(GOOD, 0)[:1200])
    write(tmp_path / "whole", [b"whole"])
    sources = [tmp_path / "whole", flip, torn, packed]
    with pytest.raises(CorruptDataError):
        split(sources, tmp_path / "{shard}", shards=2, mode=mode, compression=compression)
    report = split(
        sources, tmp_path / "{shard}", shards=2, mode=mode, compression=compression, on_corrupt="skip"
    )
    rest = [b"whole", *RECORDS[:3], *RECORDS[4:], *RECORDS[:2], *RECORDS[7:], *RECORDS[:5]]
    assert sorted(record for one in report.outputs for record in Reader(one.path)) == sorted(rest)
    assert report.records == len(rest)
    assert [(one.path, one.record) for one in report.damaged] == [
        (str(flip), 3),
        (str(torn), 2),
        (str(packed), 5),
    ]
    assert json.loads(json.dumps(report.to_dict()))["damaged"][0]["repaired"] is False
    report = split(flip, tmp_path / "all", shards=1, compression=compression, on_corrupt="repair")
    assert list(Reader(tmp_path / "all")) == RECORDS
    assert [one.repaired for one in report.damaged] == [True]
    with pytest.raises(CorruptRecordError, match="more than a flipped bit"):
        split(torn, tmp_path / "b", shards=1, on_corrupt="repair")


def test_damage_cannot_be_found_without_checksums(tmp_path: Path) -> None:
    path = write(tmp_path / "in", [b"x"])
    with pytest.raises(PlanError, match='verify=False and on_corrupt="skip"'):
        split(path, tmp_path / "{shard}", shards=1, on_corrupt="skip", verify=False)

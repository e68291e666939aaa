from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from shardkeep.errors import (
    CorruptRecordError,
    DurabilityError,
    ExistsError,
    LockTimeoutError,
    NotFoundError,
    PlanError,
    TruncatedFileError,
)
from shardkeep.tfrecord import Reader, ShardWriter, Writer
from tests.unit.tfrecord.test_reader import frame


@pytest.mark.parametrize("compression", [None, "gzip", "zlib", "GZIP"])
def test_what_is_written_is_read(compression: str | None, tmp_path: Path) -> None:
    path = tmp_path / "x"
    records = [b"", b"a", b"x" * 3_000_000, b"b" * 17]
    with Writer(path, compression=compression) as w:
        for record in records:
            w.write(record)
        assert not path.exists()
    assert os.listdir(tmp_path) == ["x"]
    assert list(Reader(path)) == records


def test_plain_frames_are_the_format(tmp_path: Path) -> None:
    with Writer(tmp_path / "x") as w:
        w.write(b"abc")
        w.write(bytearray(b"d"))
    assert (tmp_path / "x").read_bytes() == frame(b"abc") + frame(b"d")


def test_nothing_is_overwritten_unless_asked(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(frame(b"old"))
    with pytest.raises(ExistsError):
        Writer(path)
    with Writer(path, exists="replace") as w:
        w.write(b"new")
        assert list(Reader(path)) == [b"old"]
    assert list(Reader(path)) == [b"new"]


def test_an_exception_publishes_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="mine"), Writer(tmp_path / "x") as w:
        w.write(b"a")
        raise RuntimeError("mine")
    aborted = Writer(tmp_path / "y")
    aborted.write(b"a")
    aborted.abort()
    assert os.listdir(tmp_path) == []


def test_a_second_writer_is_told_who_writes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for mode in ("fail", "replace", "append"):
        with Writer(path, exists="replace"), pytest.raises(LockTimeoutError) as caught:
            Writer(path, exists=mode)
        assert caught.value.holder is not None
        assert caught.value.holder["pid"] == os.getpid()


@pytest.mark.parametrize("cut", range(1, 19))
def test_append_cuts_a_torn_tail_off(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(frame(b"whole") + frame(b"abc")[:-cut])
    with Writer(path, exists="append") as w:
        w.write(b"next")
    assert list(Reader(path)) == [b"whole", b"next"]


def test_append_cuts_the_nuls_of_a_power_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(frame(b"whole") + b"\0" * 5000)
    with Writer(path, exists="append") as w:
        w.write(b"next")
    assert list(Reader(path)) == [b"whole", b"next"]


def test_append_does_not_hide_damage(tmp_path: Path) -> None:
    path = tmp_path / "x"
    damaged = bytearray(frame(b"whole") + frame(b"abc"))
    damaged[3] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptRecordError):
        Writer(path, exists="append")
    assert path.read_bytes() == damaged
    assert os.listdir(tmp_path) == ["x"]


def test_append_makes_continues_and_keeps_on_error(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with Writer(path, exists="append") as w:
        w.write(b"1")
    with pytest.raises(RuntimeError), Writer(path, exists="append") as w:
        w.write(b"2")
        raise RuntimeError
    assert list(Reader(path)) == [b"1", b"2"]


def test_append_to_a_compressed_file_adds_a_member(tmp_path: Path) -> None:
    path = tmp_path / "x"
    for record in (b"1", b"2"):
        with Writer(path, exists="append", compression="gzip") as w:
            w.write(record)
    assert list(Reader(path)) == [b"1", b"2"]
    with pytest.raises(PlanError, match="gzip"):
        Writer(path, exists="append")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(TruncatedFileError):
        Writer(path, exists="append", compression="gzip")


def test_nothing_is_appended_to_a_zlib_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with Writer(path, exists="append", compression="zlib") as w:
        w.write(b"1")
    with pytest.raises(PlanError, match="TensorFlow would not see"):
        Writer(path, exists="append", compression="zlib")
    assert list(Reader(path)) == [b"1"]


def test_a_missing_folder(tmp_path: Path) -> None:
    for mode in ("fail", "append"):
        with pytest.raises(NotFoundError):
            Writer(tmp_path / "no" / "x", exists=mode)


def test_several_threads_write_whole_records(tmp_path: Path) -> None:
    with Writer(tmp_path / "x") as w:

        def work(k: int) -> None:
            for i in range(300):
                w.write(b"%d:" % k + bytes([i % 256]) * 2000)

        threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(list(Reader(tmp_path / "x"))) == 1200


def test_a_closed_writer_says_so(tmp_path: Path) -> None:
    w = Writer(tmp_path / "x")
    w.close()
    w.close()
    with pytest.raises(PlanError, match="closed"):
        w.write(b"")


def test_a_sync_error_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    w = Writer(tmp_path / "x")
    w.write(b"a")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DurabilityError, match="make room"):
        w.close()
    assert os.listdir(tmp_path) == []


def test_shards_appear_together(tmp_path: Path) -> None:
    with ShardWriter(tmp_path / "t-{shard:02d}-of-{shards:02d}", shards=3) as w:
        for i in range(7):
            w.write(b"%d" % i)
        w.write(b"last", shard=2)
        assert not any(name.startswith("t-0") for name in os.listdir(tmp_path))
    assert sorted(os.listdir(tmp_path)) == ["t-00-of-03", "t-01-of-03", "t-02-of-03"]
    assert list(Reader(tmp_path / "t-00-of-03")) == [b"0", b"3", b"6"]
    assert list(Reader(tmp_path / "t-02-of-03")) == [b"2", b"5", b"last"]


def test_one_shard_that_is_there_stops_all(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"mine")
    with pytest.raises(ExistsError):
        ShardWriter(tmp_path / "{shard}", shards=3)
    assert os.listdir(tmp_path) == ["1"]
    assert (tmp_path / "1").read_bytes() == b"mine"


def test_patterns_that_name_no_shards(tmp_path: Path) -> None:
    for pattern in ("same", "{other}", "{shard"):
        with pytest.raises(PlanError):
            ShardWriter(tmp_path / pattern, shards=2)
    with pytest.raises(PlanError, match="counted from 0"), ShardWriter(tmp_path / "{shard}", shards=2) as w:
        w.write(b"", shard=2)
    assert os.listdir(tmp_path) == []

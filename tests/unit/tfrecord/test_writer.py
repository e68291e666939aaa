from __future__ import annotations

import gzip
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    DurabilityError,
    ExistsError,
    LockTimeoutError,
    NotFoundError,
    PlanError,
)
from shardkeep.tfrecord import Reader, ShardWriter, Writer, writer
from shardkeep.tfrecord.example.row_columns import as_columns
from tests.unit.tfrecord.test_reader import frame


@pytest.mark.parametrize("compression", [None, "gzip", "zlib", "GZIP"])
def test_written_data_is_read_back(compression: str | None, tmp_path: Path) -> None:
    path = tmp_path / "x"
    records = [b"", b"a", b"x" * 3_000_000, b"b" * 17]
    with Writer(path, compression=compression) as w:
        for record in records:
            w.write(record)
        assert not path.exists()
    assert os.listdir(tmp_path) == ["x"]
    assert list(Reader(path)) == records


def test_uncompressed_files_consist_of_plain_frames(tmp_path: Path) -> None:
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


def test_second_writer_error_names_the_holder(tmp_path: Path) -> None:
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


@pytest.mark.parametrize("place", [13, 22, 36])
def test_append_does_not_hide_a_damaged_payload(place: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    damaged = bytearray(frame(b"whole") + frame(b"abc"))
    damaged[place] ^= 1
    path.write_bytes(damaged)
    with pytest.raises(CorruptRecordError):
        Writer(path, exists="append")
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("payload", [b"", b"x" * 3000])
@pytest.mark.parametrize("more", [0, 5000])
def test_append_cuts_a_record_off_of_which_a_power_cut_left_the_header(
    payload: bytes, more: int, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.write_bytes(frame(b"whole") + frame(payload)[:12] + bytes(len(payload) + 4 + more))
    with Writer(path, exists="append") as w:
        w.write(b"next")
    assert list(Reader(path)) == [b"whole", b"next"]


def test_append_keeps_nuls_before_whole_records(tmp_path: Path) -> None:
    path = tmp_path / "x"
    content = frame(b"whole") + frame(b"x" * 3000)[:12] + bytes(3004) + frame(b"abc")
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError):
        Writer(path, exists="append")
    assert path.read_bytes() == content


def test_append_creates_continues_and_keeps_whole_records_on_error(tmp_path: Path) -> None:
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


def gzip_file(path: Path, *members: list[bytes]) -> list[int]:
    ends = []
    for member in members:
        with Writer(path, exists="append", compression="gzip") as w:
            for record in member:
                w.write(record)
        ends.append(path.stat().st_size)
    return ends


def test_append_cuts_a_torn_gzip_member_off(tmp_path: Path) -> None:
    path = tmp_path / "x"
    _, end, size = gzip_file(path, [b"1", b"x" * 3_000_000], [], [os.urandom(500), b"3"])
    whole = path.read_bytes()
    for cut in (end + 1, end + 11, end + 300, size - 8, size - 1):
        path.write_bytes(whole[:cut])
        with Writer(path, exists="append", compression="gzip") as w:
            w.write(b"next")
        assert list(Reader(path)) == [b"1", b"x" * 3_000_000, b"next"]
    path.write_bytes(whole[:end] + bytes(size - end))
    with Writer(path, exists="append", compression="gzip") as w:
        w.write(b"next")
    assert list(Reader(path)) == [b"1", b"x" * 3_000_000, b"next"]


def test_append_leaves_a_gzip_file_alone_that_is_damaged_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "x"
    first, end = gzip_file(path, [os.urandom(500)], [os.urandom(500)])
    whole = path.read_bytes()
    torn_record = gzip.compress(frame(b"abc")[:-1])
    for content in (
        whole[: first - 3],  # no member is whole
        whole[:300] + bytes([whole[300] ^ 1]) + whole[301 : end - 3],
        whole[: first + 200] + bytes([whole[first + 200] ^ 1]) + whole[first + 201 :],
        whole[: first - 3] + whole[first:],
        torn_record,
        torn_record + whole[: first - 3],
    ):
        path.write_bytes(content)
        with pytest.raises(CorruptDataError):
            Writer(path, exists="append", compression="gzip")
        assert path.read_bytes() == content


def test_nothing_is_appended_to_a_zlib_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with Writer(path, exists="append", compression="zlib") as w:
        w.write(b"1")
    with pytest.raises(PlanError, match="TensorFlow would not read"):
        Writer(path, exists="append", compression="zlib")
    assert list(Reader(path)) == [b"1"]


def test_missing_folder_is_not_found(tmp_path: Path) -> None:
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


def test_closed_writer_refuses_writes(tmp_path: Path) -> None:
    w = Writer(tmp_path / "x")
    w.close()
    w.close()
    with pytest.raises(PlanError, match="closed"):
        w.write(b"")


@pytest.mark.parametrize("exists", ["fail", "append"])
def test_write_during_close_is_refused(exists: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for end in (Writer.close, Writer.abort):
        path, other = tmp_path / end.__name__, tmp_path / f"other-{end.__name__}"
        w = Writer(path, exists=exists)
        w.write(b"a")
        opened: list[int] = []

        def late(
            columns: Any, w: Writer = w, end: Any = end, other: Path = other, opened: list[int] = opened
        ) -> Any:
            end(w)
            # They take the numbers of the descriptors that the writer had.
            opened.extend(os.open(other, os.O_WRONLY | os.O_CREAT) for _ in range(4))
            return as_columns(columns)

        monkeypatch.setattr(writer, "as_columns", late)
        with pytest.raises(PlanError, match="closed"):
            w.write_examples({"x": [b"x" * 3_000_000]})
        assert other.read_bytes() == b""
        for fd in opened:
            os.close(fd)
        assert not path.exists() or list(Reader(path)) == [b"a"]


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_link_and_its_target_share_one_lock(mode: str, tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    path, link, again = tmp_path / "runs" / "a", tmp_path / "latest", tmp_path / "again"
    link.symlink_to(Path("runs") / "a")
    again.symlink_to("latest")
    for first, second in ((path, again), (again, path), (link, again)):
        with Writer(first, exists=mode) as w:
            w.write(b"1")
            with pytest.raises(LockTimeoutError) as caught:
                Writer(second, exists=mode)
            assert caught.value.path == str(second)
            assert str(caught.value).startswith(repr(str(second)))
            with pytest.raises(LockTimeoutError, match=str(second)):
                Reader(second, lock=True, lock_timeout_s=0)
    assert sorted(os.listdir(tmp_path)) == ["again", "latest", "runs"]
    assert os.listdir(tmp_path / "runs") == ["a"]
    assert set(Reader(path)) == {b"1"}


def test_a_sync_error_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    w = Writer(tmp_path / "x")
    w.write(b"a")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DurabilityError, match="free space"):
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


def test_existing_shard_prevents_the_publication_of_all(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"mine")
    with pytest.raises(ExistsError):
        ShardWriter(tmp_path / "{shard}", shards=3)
    assert os.listdir(tmp_path) == ["1"]
    assert (tmp_path / "1").read_bytes() == b"mine"


def test_patterns_and_numbers_that_name_no_shard_are_refused(tmp_path: Path) -> None:
    for pattern in ("same", "{other}", "{shard"):
        with pytest.raises(PlanError):
            ShardWriter(tmp_path / pattern, shards=2)
    wrong = pytest.raises(PlanError, match="shard must be from 0 to 1, not 2")
    with wrong, ShardWriter(tmp_path / "{shard}", shards=2) as w:
        w.write(b"", shard=2)
    assert os.listdir(tmp_path) == []

"""Indexes from scans and from stored files.

Covers `shardkeep.tfrecord.index.scan`.
"""

from __future__ import annotations

import gzip
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkeep import Loader, World, _core
from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    FormatError,
    NotFoundError,
    TruncatedFileError,
)
from shardkeep.tfrecord import Index, Reader, Writer, build_index
from shardkeep.tfrecord.index.binary import decode, encode
from shardkeep.tfrecord.index.index import frame_starts, load_index, load_indexes


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Store index files next to the shards, also those of readers, since these tests inspect them."""
    monkeypatch.setenv("SHARDKEEP_INDEX", "beside")


def files(folder: Path, counts: list[int]) -> list[Path]:
    folder.mkdir(exist_ok=True)
    paths = []
    for i, count in enumerate(counts):
        paths.append(folder / f"{i}.tfrecord")
        with Writer(paths[-1]) as w:
            for j in range(count):
                w.write(b"x" * j)
    return paths


@pytest.mark.parametrize("threads", [1, 4, None])
def test_starts_of_several_files_are_returned(threads: int | None, tmp_path: Path) -> None:
    found = frame_starts(files(tmp_path, [3, 0, 50]), threads=threads)
    assert [len(starts) - 1 for starts in found] == [3, 0, 50]
    assert found[0].tolist() == [0, 16, 33, 51]
    assert frame_starts([]) == []


def test_payloads_are_checked_only_with_verify_and_headers_always(tmp_path: Path) -> None:
    (path,) = files(tmp_path, [10])
    content = bytearray(path.read_bytes())
    content[16 + 12] ^= 1  # the payload of record 1
    path.write_bytes(content)
    assert len(frame_starts([path])[0]) == 11
    with pytest.raises(CorruptRecordError, match="record 1 at byte 16"):
        frame_starts([path], verify=True)
    content[16] ^= 1  # its length
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError, match="header"):
        frame_starts([path])


def test_the_first_bad_file_is_named(tmp_path: Path) -> None:
    paths = files(tmp_path, [3, 3, 3])
    for path in paths[1:]:
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(TruncatedFileError) as caught:
        frame_starts(paths, threads=2)
    assert caught.value.path == str(paths[1])


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    (path,) = files(tmp_path, [3])
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(FormatError, match=r"gzip-compressed as a whole, .*: shardkeep concat IN OUT$"):
        frame_starts([packed])
    packed.write_bytes(b"<html>" + b" " * 100)
    with pytest.raises(FormatError, match="HTML"):
        frame_starts([packed])
    with pytest.raises(NotFoundError):
        frame_starts([tmp_path / "nothing"])


# -- Index and build_index --------------------------------------------------------------------------------


def test_index_depends_on_the_content_alone(tmp_path: Path) -> None:
    (path,) = files(tmp_path, [4])
    index = build_index(path)
    assert index.starts.tolist() == [0, 16, 33, 51, 70]
    assert index.starts.dtype == np.uint64
    assert (index.records, len(index), index.size_bytes) == (4, 4, 70)
    assert index.lengths.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="read-only"):
        index.starts[0] = 1
    with pytest.raises(AttributeError):
        index.starts = index.starts  # type: ignore[misc]
    copy = tmp_path / "elsewhere"
    copy.write_bytes(path.read_bytes())
    assert build_index(copy) == index
    assert hash(build_index(copy)) == hash(index)
    assert build_index(files(tmp_path / "more", [5, 0])) != [index, index]
    assert index != "an index"
    again = pickle.loads(pickle.dumps(index))
    assert again == index
    assert not again.starts.flags.writeable
    mine = index.starts.copy()
    assert Index(mine) == index
    mine[1] = 17  # stays the caller's own
    assert build_index(tmp_path / "more" / "1.tfrecord").lengths.tolist() == []


def test_one_path_several_paths_and_patterns_are_accepted(tmp_path: Path) -> None:
    paths = files(tmp_path, [3, 0, 50])
    assert build_index(str(paths[0])).records == 3
    assert [index.records for index in build_index(paths)] == [3, 0, 50]
    assert [index.records for index in build_index([f"{tmp_path}/*.tfrecord"])] == [3, 0, 50]
    with pytest.raises(NotFoundError, match="pass a pattern in a list"):
        build_index(f"{tmp_path}/*.tfrecord")
    with pytest.raises(NotFoundError):
        build_index(tmp_path / "nothing")


def test_progress_counts_the_bytes_of_all_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardkeep.tfrecord.index.scan.SCAN_BYTES", 500)
    paths = files(tmp_path, [50, 60])
    total = sum(path.stat().st_size for path in paths)
    told: list[tuple[int, int]] = []
    indexes = build_index(paths, threads=1, progress=lambda *now: told.append(now))
    assert indexes == [Index(starts) for starts in frame_starts(paths)]
    assert len(told) > 6
    assert told[-1] == (total, total)
    assert told == sorted(told)


@pytest.mark.parametrize("part_bytes", [1, 15, 16, 17, 1000, 1 << 20])
def test_scan_in_parts_equals_a_scan_at_once(
    part_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shardkeep.tfrecord.index.scan.SCAN_BYTES", part_bytes)
    (path,) = files(tmp_path, [60])
    assert build_index(path) == Index(frame_starts([path])[0])
    content = bytearray(path.read_bytes())
    at = int(frame_starts([path])[0][40])
    content[at + 15] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError, match=f"record 40 at byte {at}"):
        build_index(path, verify=True)
    path.write_bytes(content[: at + 13])
    with pytest.raises(TruncatedFileError) as caught:
        build_index(path)
    assert (caught.value.record, caught.value.offset_bytes) == (40, at)


def test_build_names_the_kind_of_another_file(tmp_path: Path) -> None:
    packed = tmp_path / "packed"
    packed.write_bytes(gzip.compress(files(tmp_path, [3])[0].read_bytes()))
    with pytest.raises(FormatError, match="gzip-compressed as a whole"):
        build_index(packed)
    assert sorted(os.listdir(tmp_path)) == ["0.tfrecord", "packed"]


# -- when a stored index is used, and when not ------------------------------------------------------------

BODY = 1200


def large(path: Path, *, records: int = BODY, first: int = 0, exists: str = "fail") -> Path:
    """Write a shard that is large enough for an index file."""
    with Writer(path, exists=exists) as w:
        for i in range(first, first + records):
            w.write(i.to_bytes(2, "big") * (450 + i % 50))
    return path


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list of offsets at which scans began."""
    offsets: list[int] = []
    real = _core.scan_part

    def scan_part(path: str, *, offset_bytes: int, **rest: Any) -> Any:
        offsets.append(offset_bytes)
        return real(path, offset_bytes=offset_bytes, **rest)

    monkeypatch.setattr("shardkeep._core.scan_part", scan_part)
    return offsets


def truth(path: Path) -> Index:
    return Index(frame_starts([path])[0])


def test_a_stored_index_is_used(tmp_path: Path, scanned: list[int]) -> None:
    paths = [large(tmp_path / name) for name in "ab"] + files(tmp_path, [3])
    first = load_indexes(paths)
    assert len(scanned) == 2
    assert load_indexes(paths) == first == [truth(path) for path in paths]
    assert load_index(paths[1]) == first[1]
    assert len(scanned) == 2
    build_index(paths[0])
    assert scanned == [0, 0, 0]


def test_reader_and_loader_use_a_stored_index(tmp_path: Path, scanned: list[int]) -> None:
    path = large(tmp_path / "a")
    assert Reader(path)[-1] == (BODY - 1).to_bytes(2, "big") * (450 + (BODY - 1) % 50)
    assert scanned == [0]
    assert len(Reader(path)) == BODY
    loader = Loader(path, world=World(0, 1), batch_size=100)
    assert sum(int(batch["valid"].sum()) for batch in loader) == BODY
    assert scanned == [0]


def test_only_the_new_part_of_a_file_that_grew_is_scanned(tmp_path: Path, scanned: list[int]) -> None:
    path = large(tmp_path / "a")
    old_bytes = load_index(path).size_bytes
    for turn in range(1, 3):
        large(path, records=7, first=BODY, exists="append")
        scanned.clear()
        assert load_index(path) == truth(path)
        assert scanned == [old_bytes]
        assert load_index(path).records == BODY + 7 * turn
        assert scanned == [old_bytes]  # the longer one was stored
        old_bytes = load_index(path).size_bytes
    reader = Reader(path)
    assert len(reader) == BODY + 14
    large(path, records=1, exists="append")
    assert len(reader) == BODY + 15


def test_a_damaged_new_part_is_reported_as_by_a_scan(tmp_path: Path) -> None:
    path = large(tmp_path / "a")
    size = load_index(path).size_bytes
    path.write_bytes(path.read_bytes() + b"torn")
    with pytest.raises(TruncatedFileError) as caught:
        load_index(path)
    assert (caught.value.record, caught.value.offset_bytes) == (BODY, size)
    path.write_bytes(path.read_bytes()[:-4] + b"x" * 20)
    with pytest.raises(CorruptRecordError) as damaged:
        load_index(path)
    assert (damaged.value.record, damaged.value.offset_bytes) == (BODY, size)


def put(path: Path, content: bytes, mtime_ns: int) -> None:
    """Rewrite a file in place and restore its modification time."""
    with path.open("r+b") as file:
        file.truncate(0)
        file.write(content)
    os.utime(path, ns=(mtime_ns, mtime_ns))


def test_rewrite_with_the_same_size_and_time_is_noticed(tmp_path: Path, scanned: list[int]) -> None:
    path = large(tmp_path / "a")
    old = load_index(path)
    mtime_ns = path.stat().st_mtime_ns
    # The same records in the other order: as many bytes, the frames elsewhere.
    records = list(Reader(path))[::-1]
    with Writer(tmp_path / "b") as w:
        for record in records:
            w.write(record)
    put(path, (tmp_path / "b").read_bytes(), mtime_ns)
    assert path.stat().st_size == old.size_bytes
    assert path.stat().st_mtime_ns == mtime_ns
    scanned.clear()
    assert load_index(path) == truth(path) != old
    assert scanned == [0]
    assert Reader(path).read_many(range(BODY)) == records
    assert load_index(path) == truth(path)
    assert scanned == [0]


def swapped(path: Path, index: Index) -> bytes:
    """Exchange records 1 and 2: the first header of each sampled block stays where it was."""
    content, starts = path.read_bytes(), index.starts.tolist()
    one, two = content[starts[1] : starts[2]], content[starts[2] : starts[3]]
    return content[: starts[1]] + two + one + content[starts[3] :]


def test_sampled_blocks_reveal_a_rewrite(tmp_path: Path, scanned: list[int]) -> None:
    path = large(tmp_path / "a")
    old, mtime_ns = load_index(path), path.stat().st_mtime_ns
    put(path, swapped(path, old), mtime_ns)
    assert load_index(path) == truth(path) != old
    assert scanned == [0, 0]


def test_touched_replaced_and_truncated_shards_are_scanned_again(tmp_path: Path, scanned: list[int]) -> None:
    path = large(tmp_path / "a")
    load_index(path)
    os.utime(path, ns=(1, 1))
    load_index(path)
    assert scanned == [0, 0]
    large(path, records=BODY + 50, exists="replace")
    assert load_index(path) == truth(path)
    content = path.read_bytes()[: int(truth(path).starts[-3])]
    path.write_bytes(content)
    assert load_index(path) == truth(path)
    assert load_index(path).records == BODY + 48


def test_larger_file_with_another_head_is_scanned_again(tmp_path: Path, scanned: list[int]) -> None:
    path = large(tmp_path / "a")
    load_index(path)
    large(path, records=2 * BODY, first=3, exists="replace")
    scanned.clear()
    assert load_index(path) == truth(path)
    assert scanned == [0]


def test_grown_file_with_changed_old_part_is_rescanned(
    tmp_path: Path, scanned: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old part fits by accident, its end is inside a record: the scan of the new part fails."""
    path = large(tmp_path / "a")
    old = load_index(path)
    content = path.read_bytes()
    with Writer(tmp_path / "b") as w:
        w.write(b"x" * 2000)
    cut = int(old.starts[-2])
    path.write_bytes(content[:cut] + (tmp_path / "b").read_bytes())
    monkeypatch.setattr("shardkeep.tfrecord.index.store.frames_fit", lambda starts, blocks: True)
    monkeypatch.setattr("shardkeep.tfrecord.index.fingerprint.crc32c", lambda data: 0)
    put(path, content, 5)
    build_index(path)
    path.write_bytes(content[:cut] + (tmp_path / "b").read_bytes())
    scanned.clear()
    assert load_index(path) == truth(path)
    assert scanned == [old.size_bytes, 0]


def test_a_damaged_or_foreign_index_file_is_replaced(tmp_path: Path, scanned: list[int]) -> None:
    path, other = large(tmp_path / "a"), large(tmp_path / "b", records=BODY - 1)
    right = load_index(path)
    load_index(other)
    beside = tmp_path / "a.skidx"
    good = beside.read_bytes()
    for bad in (b"", b"x", good[:-1], good[:100], good + b"\0", b"\0" * len(good)):
        beside.write_bytes(bad)
        assert load_index(path) == right
        assert beside.read_bytes() == good
    beside.write_bytes((tmp_path / "b.skidx").read_bytes())
    assert load_index(path) == right
    scanned.clear()
    load_index(path)
    assert scanned == []


def test_an_index_with_wrong_offsets_and_right_checksums_is_noticed(tmp_path: Path) -> None:
    """Any user with write permission can make such a file; the headers in the sampled blocks reveal it."""
    path = large(tmp_path / "a")
    right = load_index(path)
    beside = tmp_path / "a.skidx"
    found = decode(beside.read_bytes(), shard_bytes=right.size_bytes)
    assert found is not None
    wrong = right.starts.copy()
    wrong[1:-1] += np.uint64(1)
    beside.write_bytes(encode(wrong, found[1]))
    assert load_index(path) == right


def test_rewrite_during_the_scan_within_one_clock_tick_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stored index is that of the old content, and is never used."""
    path = large(tmp_path / "a")
    old, mtime_ns = truth(path), path.stat().st_mtime_ns
    other = swapped(path, old)
    real = _core.scan_part

    def scan_part(name: str, **rest: Any) -> Any:
        found = real(name, **rest)
        put(path, other, mtime_ns)
        return found

    with monkeypatch.context() as patch:
        patch.setattr("shardkeep._core.scan_part", scan_part)
        assert load_index(path) == old
    assert os.path.exists(tmp_path / "a.skidx")
    assert load_index(path) == truth(path) != old


def test_index_of_a_file_being_written_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = large(tmp_path / "a")
    real = _core.scan_part

    def scan_part(name: str, **rest: Any) -> Any:
        starts = real(name, **rest)
        with path.open("ab") as file:
            file.write(path.read_bytes()[:1000])
        return starts

    monkeypatch.setattr("shardkeep._core.scan_part", scan_part)
    assert load_index(path).records == BODY
    assert os.listdir(tmp_path) == ["a"]


def test_replacement_between_two_parts_of_the_scan_restarts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, other = large(tmp_path / "a"), tmp_path / "b"
    monkeypatch.setattr("shardkeep.tfrecord.index.scan.SCAN_BYTES", 500_000)
    # Two frames change places, so the frames of both files meet again before the second part begins.
    content, starts = path.read_bytes(), truth(path).starts.tolist()
    one, two, rest = content[: starts[1]], content[starts[1] : starts[2]], content[starts[2] :]
    other.write_bytes(two + one + rest)
    real = _core.scan_part

    def scan_part(name: str, **rest: Any) -> Any:
        found = real(name, **rest)
        if rest["offset_bytes"] == 0:
            other.replace(path)
        return found

    monkeypatch.setattr("shardkeep._core.scan_part", scan_part)
    assert load_index(path) == truth(path)
    assert os.listdir(tmp_path) == ["a"]


def test_removal_during_the_scan_does_not_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = large(tmp_path / "a")
    monkeypatch.setattr("shardkeep.tfrecord.index.scan.SCAN_BYTES", path.stat().st_size)
    real = _core.scan_part

    def scan_part(name: str, **rest: Any) -> Any:
        found = real(name, **rest)
        if rest["offset_bytes"]:
            path.unlink()
        return found

    monkeypatch.setattr("shardkeep._core.scan_part", scan_part)
    assert load_index(path).records == BODY
    assert os.listdir(tmp_path) == []


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="a folder"):
        build_index(tmp_path)
    assert os.listdir(tmp_path) == []


def test_no_descriptor_is_left_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = large(tmp_path / "a")

    def no_more(*args: object, **kwargs: object) -> int:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("os.open", no_more)
    assert load_index(path).records == build_index(path).records == BODY


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("starts", [[0, 33, 51], [0, 17, 33, 51], [0, 16, 32, 51], [0, 16, 33, 50]])
def test_reading_with_a_wrong_index_raises(starts: list[int], verify: bool, tmp_path: Path) -> None:
    """The last check, after an index that does not match was accepted."""
    (path,) = files(tmp_path, [3])
    assert frame_starts([path])[0].tolist() == [0, 16, 33, 51]
    wrong = _core.RecordFile(path, np.array(starts, np.uint64), verify=verify)
    with pytest.raises(CorruptDataError):
        wrong.read_many(np.arange(len(starts) - 1, dtype=np.uint64))

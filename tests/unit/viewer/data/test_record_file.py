"""Records by number: with an index, by a scan in parts, after damage, and compressed.

Covers `shardkeep.viewer.data.large_index`.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from shardkeep.tfrecord import Writer, build_index
from shardkeep.viewer.data import large_index, record_file
from shardkeep.viewer.data.record_file import open_records

from .record_makers import write_examples


@pytest.fixture
def large(monkeypatch):
    """Files of a few kilobytes count as large ones."""
    monkeypatch.setattr(record_file, "_SMALL_BYTES", 100)
    monkeypatch.setattr(record_file, "_STEP_BYTES", 2000)


def test_a_large_file_is_scanned_only_as_far_as_needed(tmp_path, large):
    file = open_records(str(write_examples(tmp_path / "a.tfrecord", 200)))
    assert file.known == 0
    file.scan(24)
    assert 24 <= file.known < 60 and not file.is_complete
    file.scan(1000)
    assert file.known == 200 and file.is_complete
    assert [one.number for one in file.read(range(198, 300))] == [198, 199]


def test_the_scan_ends_with_its_time(tmp_path, large):
    file = open_records(str(write_examples(tmp_path / "a.tfrecord", 200)))
    file.scan(200, budget_s=0)
    assert 0 < file.known < 60


def test_a_stored_index_is_used(tmp_path, large):
    path = tmp_path / "a.tfrecord"
    with Writer(path) as writer:
        for _ in range(3):
            writer.write(bytes(1 << 20))
    build_index([path])
    file = open_records(str(path))
    assert file.known == 3 and file.is_complete, "without a scan"


@pytest.fixture
def indexed(tmp_path, large, monkeypatch):
    """Path and offsets of a file with 200 records and an index, where 50 are too many for the memory."""
    monkeypatch.setattr(record_file, "_MOST_RECORDS", 50)
    monkeypatch.setattr(large_index, "_WINDOW", 16)
    monkeypatch.setattr(large_index, "_STEP", 3)
    monkeypatch.setattr(large_index, "_GROUPS", 5)
    path = write_examples(tmp_path / "a.tfrecord", 200)
    return path, build_index(path).starts.astype(np.int64)


def test_a_large_index_is_read_in_parts(indexed):
    path, starts = indexed
    file = open_records(str(path))
    assert file.known == 200 and file.is_complete and file.kept_offsets == 0
    for first in (190, 0, 15, 199):
        found = file.read(range(first, first + 5))
        assert [one.start_bytes for one in found] == starts[first : min(first + 5, 200)].tolist()
        assert all(one.data is not None for one in found)
    frames = list(itertools.pairwise(starts.tolist()))
    for at in (0, 1, int(starts[16]) - 1, int(starts[16]), int(starts[199]) + 3):
        for stop in (at + 1, at + 700):
            assert file.frames_between(at, stop) == [one for one in frames if one[0] < stop and one[1] > at]
    assert set(file.sample_sizes(50).tolist()) <= set(np.diff(starts).tolist())
    assert len(file.sample_sizes(50)) == 50


def test_a_record_at_a_wrong_offset_of_a_large_index_has_a_fault(indexed):
    path, starts = indexed
    index = path.with_suffix(".tfrecord.skidx")
    lengths = np.diff(starts).astype(np.uint16)
    content = index.read_bytes()
    at = content.index(lengths.tobytes())
    lengths[30] += 1
    index.write_bytes(content[:at] + lengths.tobytes() + content[at + lengths.nbytes :])
    found = open_records(str(path)).read(range(29, 32))
    assert found[0].data is not None and found[1].fault and found[2].fault


def test_without_an_index_the_first_records_of_a_large_file_are_shown(page, tmp_path, large, monkeypatch):
    monkeypatch.setattr(record_file, "_MOST_RECORDS", 50)
    file = open_records(str(write_examples(tmp_path / "a.tfrecord", 200)))
    file.scan(1000)
    assert file.is_limited and 50 <= file.known < 100
    text = page().get("0/a.tfrecord?first=90").text
    assert f"only its first {file.known} records" in text and "next →</a>" not in text


@pytest.mark.parametrize("is_large", [False, True])
def test_records_before_damage_are_read(tmp_path, monkeypatch, is_large):
    if is_large:
        monkeypatch.setattr(record_file, "_SMALL_BYTES", 100)
    path = write_examples(tmp_path / "a.tfrecord", 50)
    start = int(build_index(path).starts[30])
    data = bytearray(path.read_bytes())
    data[start] ^= 1
    path.with_suffix(".tfrecord.skidx").unlink()
    path.write_bytes(data)
    file = open_records(str(path))
    file.scan(100)
    found = file.read(range(29, 32))
    assert found[0].data is not None
    if is_large:
        assert file.known == 30 and "header" in file.fault
    else:
        assert file.known == 50 and found[1].fault and found[2].data is not None


def test_a_damaged_payload_has_a_fault(tmp_path):
    path = write_examples(tmp_path / "a.tfrecord", 3)
    data = bytearray(path.read_bytes())
    data[14] ^= 1
    path.write_bytes(data)
    found = open_records(str(path)).read(range(3))
    assert found[0].data is None and "damaged" in found[0].fault and found[1].data is not None


def test_a_record_that_is_too_long_is_not_read(tmp_path, monkeypatch):
    path = write_examples(tmp_path / "a.tfrecord", 1)
    monkeypatch.setattr(record_file, "MOST_BYTES", 10)
    assert open_records(str(path)).read([0])[0].fault == "too long to be shown"


def test_a_long_record_of_a_compressed_file_is_not_read(tmp_path, monkeypatch):
    with Writer(tmp_path / "a.tfrecord.gz", compression="gzip") as writer:
        for size in (5, 200, 5):
            writer.write(b"x" * size)
    monkeypatch.setattr(record_file, "MOST_BYTES", 100)
    first, second = open_records(str(tmp_path / "a.tfrecord.gz")).read(range(24))
    assert first.data == b"xxxxx"
    assert (second.number, second.data) == (1, None) and "too long to be shown" in second.fault


def test_a_compressed_file_is_read_in_order(tmp_path):
    with Writer(tmp_path / "a.tfrecord.gz", compression="gzip") as writer:
        for number in range(20):
            writer.write(b"record %d" % number)
    file = open_records(str(tmp_path / "a.tfrecord.gz"))
    assert file.compression == "gzip"
    assert [one.data for one in file.read(range(18, 30))] == [b"record 18", b"record 19"]


def test_a_changed_file_is_another_one(tmp_path):
    path = write_examples(tmp_path / "a.tfrecord", 3)
    assert open_records(str(path)) is open_records(str(path))
    write_examples(tmp_path / "b.tfrecord", 5).replace(path)
    assert open_records(str(path)).known == 5


def test_the_files_in_memory_are_few(tmp_path, monkeypatch):
    monkeypatch.setattr(record_file, "_FILE_OFFSETS", 0)
    monkeypatch.setattr(record_file._recent, "_most", 10)
    for number in range(4):
        open_records(str(write_examples(tmp_path / f"a-{number}.tfrecord", 5)))
    assert len(record_file._recent._known) == 2

"""Data sets of a folder: from indexes, from scans of small shards, and without either."""

from __future__ import annotations

import os

import pytest

from shardkeep.errors import PlanError
from shardkeep.tfrecord import build_index
from shardkeep.viewer.data import data_set
from shardkeep.viewer.data.data_set import data_sets, state_of

from .record_makers import write_examples


def test_sets_are_files_whose_names_differ_in_numbers(tmp_path):
    for number in range(3):
        write_examples(tmp_path / f"train-{number}-of-3.tfrecord", 2)
    write_examples(tmp_path / "held.tfrecord", 1)
    (tmp_path / "notes-1.txt").write_text("text")
    write_examples(tmp_path / "events.out.tfevents.1.host", 1)
    found = data_sets(str(tmp_path))
    assert list(found) == ["train-#-of-#.tfrecord", "held.tfrecord"]
    assert state_of(str(tmp_path), "train-#-of-#.tfrecord").records == 6
    with pytest.raises(PlanError):
        state_of(str(tmp_path), "notes-#.txt")


def test_a_large_shard_is_not_scanned(tmp_path, monkeypatch):
    monkeypatch.setattr(data_set, "SMALL_BYTES", 100)
    path = write_examples(tmp_path / "a-0.tfrecord", 20)
    found = state_of(str(tmp_path), "a-#.tfrecord")
    assert found.states[0].records is None and found.unindexed == 1
    build_index([path])
    indexed = state_of(str(tmp_path), "a-#.tfrecord")
    assert (indexed.states[0].records, indexed.states[0].source) == (20, "stored")


def test_an_old_index_and_a_damaged_shard_are_faults(tmp_path):
    path = write_examples(tmp_path / "a-0.tfrecord", 20)
    build_index([path])
    data = bytearray(path.read_bytes())
    data[0] ^= 255
    write_examples(tmp_path / "a-1.tfrecord", 5)
    (tmp_path / "a-2.tfrecord").write_bytes(data)
    os.utime(path, ns=(1, 1))
    states = state_of(str(tmp_path), "a-#.tfrecord").states
    assert "index" in states[0].fault and not states[1].fault and states[2].fault


def test_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDKEEP_INDEX_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "data"
    folder.mkdir()
    write_examples(folder / "a-0.tfrecord", 20)
    state_of(str(folder), "a-#.tfrecord")
    assert os.listdir(folder) == ["a-0.tfrecord"] and not (tmp_path / "cache").exists()

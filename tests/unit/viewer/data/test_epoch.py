"""The page of an epoch. Covers `shardkeep.viewer.data.epoch_picture`."""

from __future__ import annotations

import time

import numpy as np
import pytest

from shardkeep.plan import ShardTable
from shardkeep.viewer.data import data_set
from shardkeep.viewer.data.epoch_picture import PlannedEpoch, Settings, Span

from .record_makers import write_examples


def _settings(**changed):
    given = {
        "world_size": 4,
        "batch_size": 3,
        "shuffle": False,
        "shard_by": "records",
        "remainder": "mask",
        "seed": 0,
        "epoch": 0,
    }
    return Settings(**given | changed)


def test_a_step_names_the_records_of_each_rank():
    planned = PlannedEpoch(_settings(), ShardTable([10, 14]), np.array([100, 140]))
    assert planned.steps == 2
    reads = planned.reads(0)
    assert [count for _, count, _ in reads] == [3, 3, 3, 3]
    assert reads[3][2] == [Span(0, 9, 9), Span(1, 0, 1)]


@pytest.mark.parametrize("shuffle", [False, "blocks", "global"])
@pytest.mark.parametrize("shard_by", ["records", "files"])
def test_every_record_is_in_one_step(shuffle, shard_by):
    table, sizes = ShardTable([10, 0, 14, 7]), np.array([100, 0, 140, 70])
    planned = PlannedEpoch(_settings(shuffle=shuffle, shard_by=shard_by, seed=3, epoch=2), table, sizes)
    seen = [
        (span.shard, index)
        for step in range(planned.steps)
        for _, _, spans in planned.reads(step)
        for span in spans
        for index in range(span.first, span.last + 1)
    ]
    assert sorted(seen) == [(s, i) for s in range(4) for i in range(table.counts[s])]
    assert planned.picture().paths


def test_small_data_are_drawn_whole_and_large_from_a_sample():
    settings = _settings(shuffle="global", world_size=64)
    small = ShardTable([1000])
    assert PlannedEpoch(settings, small, np.array([1])).picture().sampled == 1000
    large = ShardTable([10_000] * 10_000)
    sizes = np.full(10_000, 10**6)
    begin = time.process_time()
    planned = PlannedEpoch(settings, large, sizes)
    picture = planned.picture()
    planned.reads(17)
    assert time.process_time() - begin < 2
    assert 0 < picture.sampled < 100_000 and picture.rows == 64 and picture.columns == 128


def test_ranks_that_read_whole_files_share_no_column():
    table, sizes = ShardTable([100] * 8), np.full(8, 1000)
    picture = PlannedEpoch(_settings(shard_by="files", world_size=8), table, sizes).picture()
    assert picture.largest_share == 1.0


def test_the_page_has_a_form_and_links_to_records(page, tmp_path):
    for number in range(3):
        write_examples(tmp_path / f"a-{number}.tfrecord", 20)
    client = page()
    text = client.get("0?view=epoch&ranks=2&batch=5&place=500").text
    assert "2 ranks, batches of 5, epoch 0: 6 steps for 60 records." in text
    assert "Step 3 of 6" in text and "a-1.tfrecord: 10–14" in text
    part = client.get("0?view=epoch&ranks=7&part=picture&shuffle=global").text
    assert "7 ranks" in part and "<html" not in part
    assert client.get("0?view=epoch&ranks=0&seed=99999999999999999999999&batch=-3").status_code == 200


def test_a_set_without_indexes_names_the_command(page, tmp_path, monkeypatch):
    monkeypatch.setattr(data_set, "SMALL_BYTES", 10)
    write_examples(tmp_path / "a-0.tfrecord", 20)
    assert "shardkeep index" in page().get("0?view=epoch").text

"""The shard table: empty shards, a million shards, and numbers out of range."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import PlanError
from shardkeep.plan import ShardTable


@given(st.lists(st.integers(0, 6), max_size=40))
def test_global_numbers_count_through_the_shards(counts: list[int]) -> None:
    table = ShardTable(counts)
    pairs = [(s, i) for s, count in enumerate(counts) for i in range(count)]
    assert (table.total, len(table)) == (len(pairs), len(counts))
    shard, index = table.locate(np.arange(table.total))
    assert shard.dtype == index.dtype == np.int64
    assert list(zip(shard.tolist(), index.tolist(), strict=True)) == pairs
    assert np.array_equal(table.global_of(shard, index), np.arange(table.total))


@given(st.lists(st.integers(0, 2**56), min_size=1, max_size=16), st.data())
def test_table_of_very_many_records(counts: list[int], data: st.DataObject) -> None:
    counts[data.draw(st.integers(0, len(counts) - 1))] += 10**10
    table = ShardTable(counts)
    assert table.total == sum(counts)
    for shard in np.flatnonzero(counts).tolist():
        index = data.draw(st.integers(0, counts[shard] - 1))
        for one in (0, index, counts[shard] - 1):
            record = sum(counts[:shard]) + one
            assert [int(found) for found in table.locate(record)] == [shard, one]
            assert int(table.global_of(shard, one)) == record


def test_table_of_a_million_shards() -> None:
    counts = np.random.default_rng(1).integers(0, 20_000, 1_000_000)
    table = ShardTable(counts)
    records = np.random.default_rng(2).integers(0, table.total, 10_000)
    shard, index = table.locate(records)
    assert (index < counts[shard]).all()
    assert np.array_equal(table.global_of(shard, index), records)


def test_results_have_the_shape_of_the_input() -> None:
    table = ShardTable([3, 4])
    shard, index = table.locate(np.array([[0, 6]]))
    assert shard.tolist() == [[0, 1]]
    assert index.tolist() == [[0, 3]]
    assert table.global_of(1, [[0], [3]]).tolist() == [[3], [6]]
    assert table.locate(5)[0].shape == ()


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([-1], "has the value -1"),
        ([1.5], "float64"),
        ([[1]], "one dimension, not 2"),
        ([2**60, 2**60], "add up"),
        ([2**60] * 17, "add up"),
        (3, "one dimension, not 0"),
    ],
)
def test_bad_counts_are_refused(counts, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PlanError, match=words):
        ShardTable(counts)


def test_records_outside_are_refused() -> None:
    table = ShardTable([2, 0, 1])
    with pytest.raises(PlanError, match=r"records has the value 3.*\[0, 3\)"):
        table.locate([0, 3])
    with pytest.raises(PlanError, match="index of shard 1 must be below its 0 records, not 0"):
        table.global_of([0, 1], [1, 0])
    with pytest.raises(PlanError, match="shard has the value 3"):
        table.global_of(3, 0)
    with pytest.raises(PlanError, match="same shape"):
        table.global_of([0, 0], [0, 0, 0])
    with pytest.raises(PlanError):
        ShardTable([]).locate(0)


def test_equal_tables_are_equal_and_immutable() -> None:
    given = np.array([2, 0, 1])
    table = ShardTable(given)
    given[0] = 7
    assert table.total == 3
    assert table == ShardTable([2, 0, 1]) != ShardTable([2, 1])
    assert hash(table) == hash(ShardTable([2, 0, 1]))
    assert pickle.loads(pickle.dumps(table)) == table
    assert table != [2, 0, 1]
    with pytest.raises(ValueError, match="read-only"):
        table.counts[0] = 1

"""Sets of shards among some names; the names of a pattern are tested with `ShardWriter`."""

from __future__ import annotations

import pytest

from shardkeep.tfrecord.shard_names import find_set_faults, shard_names, shard_pattern

PATTERN = "data/t-{shard:05d}-of-{shards:05d}.tfrecord"


def _faults(paths: list[str]) -> list[tuple[str, str, str]]:
    return [(fault.kind, fault.pattern, fault.text) for fault in find_set_faults(paths)]


@pytest.mark.parametrize(
    "paths",
    [
        [],
        ["a.tfrecord", "b-of-c.tfrecord", "1-of", "fold3-of-"],
        shard_names(PATTERN, 8),
        shard_names(PATTERN, 8)[::-1],
        shard_names("a-{shard}-of-{shards}", 12),
        shard_names("a_{shard:03d}_of_{shards:03d}.gz", 12),
        [f"mnist-train.tfrecord-0000{i}-of-00002" for i in (0, 1)],
        [f"from-one-{i}-of-3" for i in (1, 2, 3)],
        shard_names("train-{shard}-of-{shards}", 2) + shard_names("test-{shard}-of-{shards}", 3),
        shard_names("old/t-{shard}-of-{shards}", 2) + shard_names("new/t-{shard}-of-{shards}", 3),
    ],
)
def test_whole_sets_have_no_fault(paths: list[str]) -> None:
    assert _faults(paths) == []


def test_missing_shards_are_named() -> None:
    names = shard_names(PATTERN, 8)
    pattern = "data/t-?????-of-00008.tfrecord"
    text = "shard 00003 is missing; found 7 of 8"
    assert _faults(names[:3] + names[4:]) == [("incomplete-set", pattern, text)]
    text = "shards 00000 to 00001, 00003 to 00007 are missing; found 1 of 8"
    assert _faults([names[2]]) == [("incomplete-set", pattern, text)]
    (fault,) = find_set_faults(shard_names(PATTERN, 100)[::2])
    assert fault.text.endswith("00007, 00009 and 45 more ranges are missing; found 50 of 100")


def test_a_set_may_begin_with_shard_1_of_n_only_if_it_has_shard_n() -> None:
    (fault,) = find_set_faults(["a-1-of-3", "a-2-of-3"])
    assert fault.text == "shard 0 is missing; found 2 of 3"
    (fault,) = find_set_faults(["a-1-of-3", "a-3-of-3"])
    assert fault.text == "shard 2 is missing; found 2 of 3"
    (fault,) = find_set_faults(["a-0-of-3", "a-3-of-3"])
    assert fault.text == "there is a shard 3, although the set has 3"


def test_sets_of_different_sizes_are_mixed() -> None:
    paths = shard_names(PATTERN, 8)[:1] + shard_names(PATTERN, 4)
    text = "2 sets have this name: there are 4 of the 4 and 1 of the 8 shards"
    assert _faults(paths) == [("mixed-sets", "data/t-*-of-*.tfrecord", text)]
    assert _faults(["a-0-of-1", "a-00-of-1"]) == [
        ("mixed-sets", "a-?-of-1", "there are 2 files of 1 shards"),
    ]


def test_a_huge_number_of_shards_is_not_counted_one_by_one() -> None:
    (fault,) = find_set_faults(["a-7-of-" + "9" * 200])
    assert fault.text.startswith("shards 0 to 6, 8 to 999")


def test_pattern_of_a_shard() -> None:
    assert shard_pattern("a/t-00003-of-00008.tfrecord") == "a/t-?????-of-00008.tfrecord"
    assert shard_pattern("1-of-2/a.tfrecord") is None

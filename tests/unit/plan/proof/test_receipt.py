"""Receipts: their size, round trip and the refusal of invalid ones.

Covers `shardkeep.plan.proof.contents` and `shardkeep.plan.proof.fields`.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.plan import Damage, Dataset, Receipt, Segment
from shardkeep.plan.file_assignment import HistoryEntry
from shardkeep.plan.proof.receipt import ReceiptParser
from shardkeep.plan.proof.sealed_json import seal

RECEIPT = Receipt(
    id="0123456789abcdef" * 2,
    rank=3,
    world_size=8,
    batch_size=64,
    remainder="mask",
    dataset=Dataset("sha256:c0ffee", 1000, ("a.tfrecord", "b.tfrecord"), (600, 400)),
    shuffle="global",
    seed=2**64 - 1,
    segments=(Segment(0, 0, 2), Segment(1, 512, 1)),
)


@pytest.mark.parametrize(
    "receipt",
    [
        RECEIPT,
        replace(RECEIPT, shuffle=False, segments=()),
        replace(RECEIPT, shuffle="blocks", block_records=7, window_blocks=9),
        replace(RECEIPT, dataset=Dataset("x", 1000)),
        replace(RECEIPT, damage=(Damage(0, 5, 100, 120, False), Damage(1, 5, 100, 120, True))),
    ],
)
def test_receipt_is_unchanged_by_a_round_trip(receipt: Receipt) -> None:
    assert Receipt.from_dict(json.loads(json.dumps(receipt.to_dict()))) == receipt


def test_receipt_without_damage_has_no_damage_keys() -> None:
    assert not {"skipped", "repaired"} & set(RECEIPT.to_dict())
    data = replace(RECEIPT, damage=(Damage(0, 5, 100, 120, False),)).to_dict()
    assert data["skipped"] == [[0, 5, 100, 120]]
    assert "repaired" not in data


def test_receipt_is_small() -> None:
    days = replace(RECEIPT, segments=tuple(Segment(epoch, 0, 10**9) for epoch in range(10)))
    assert len(json.dumps(RECEIPT.to_dict())) < 600
    assert len(json.dumps(days.to_dict())) < 1200


def put(data, path, value):  # type: ignore[no-untyped-def]
    data = copy.deepcopy(data)
    *parents, key = path
    inner = data
    for parent in parents:
        inner = inner[parent]
    inner[key] = value
    return data


# As an older Shardkeep wrote it: without a checksum, which any change would break.
PLAIN = {key: value for key, value in RECEIPT.to_dict().items() if key != "crc32c"} | {"receipt_version": 2}

INTEGERS = [
    ("receipt_version",),
    ("rank",),
    ("world_size",),
    ("batch_size",),
    ("seed",),
    ("block_records",),
    ("window_blocks",),
    ("order_version",),
    ("dataset", "records"),
    ("segments", 1, "epoch"),
    ("segments", 1, "start"),
    ("segments", 1, "steps"),
]


@pytest.mark.parametrize("path", INTEGERS)
@pytest.mark.parametrize("value", [-1, 2**70, 1.0, True, None, "1", [], {}])
def test_a_wrong_number_is_named(path, value) -> None:  # type: ignore[no-untyped-def]
    named = path[-1] if len(path) < 3 else rf"segments\[1\].{path[-1]}"
    with pytest.raises(PlanError, match=named):
        Receipt.from_dict(put(PLAIN, path, value))


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("id",), "xyz", "id='xyz'"),
        (("id",), "0123456789ABCDEF" * 2, "id="),
        (("id",), 5, "id=5"),
        (("rank",), 8, "rank=8, expected an int from 0 to 7"),
        (("remainder",), "pad", "remainder='pad'"),
        (("remainder",), ["mask"], "remainder="),
        (("shuffle",), True, "shuffle=True"),
        (("shuffle",), 0, "shuffle=0"),
        (("dataset",), [], "dataset is a list"),
        (("dataset", "fingerprint"), "", "dataset.fingerprint"),
        (("dataset", "shards"), "ab", "dataset.shards"),
        (("dataset", "shards"), ["a"], "1 dataset.shards and 2 dataset.counts"),
        (("dataset", "shards"), ["a", 1], r"dataset.shards\[1\]"),
        (("dataset", "counts"), [600, "400"], r"dataset.counts\[1\]"),
        (("dataset", "counts"), [600, -1], r"dataset.counts\[1\]"),
        (("dataset", "counts"), [600, True], r"dataset.counts\[1\]"),
        (("dataset", "counts"), [600, 401], "add up to 1001"),
        (("dataset", "more"), 1, "unknown key dataset.more"),
        (("segments",), None, "segments=None"),
        (("segments",), [5], r"segments\[0\] is a int"),
        (("segments", 0, "start"), 1001, r"segments\[0\].start=1001"),
        (("segments", 0, "rank"), 1, r"unknown key segments\[0\].rank"),
        (("more",), [], "unknown key more"),
        (("skipped",), None, "skipped=None"),
        (("skipped",), [[0, 1, 2]], r"skipped\[0\]=\[0, 1, 2\], expected four or five integers"),
        (("repaired",), [[0, 1, 0, 5], 7], r"repaired\[1\]=7, expected four or five integers"),
        (("skipped",), [[0, 1, 0, True]], r"skipped\[0\]"),
        (("skipped",), [[0, 1000, 0, 5]], "record below 1000"),
        (("skipped",), [[-1, 1, 0, 5]], r"skipped\[0\]"),
        (("repaired",), [[0, 1, 5, 5]], r"repaired\[0\]"),
    ],
)
def test_other_wrong_values_are_named(path, value, words) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(PlanError, match=words) as caught:
        Receipt.from_dict(put(PLAIN, path, value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", list(PLAIN))
def test_a_missing_key_is_named(key: str) -> None:
    data = dict(PLAIN)
    del data[key]
    with pytest.raises(PlanError, match=f"no {key}"):
        Receipt.from_dict(data)


def test_old_receipt_without_a_checksum_is_accepted() -> None:
    assert Receipt.from_dict(PLAIN) == RECEIPT
    with pytest.raises(CorruptDataError, match="checksum is missing"):
        Receipt.from_dict(PLAIN | {"receipt_version": 3})
    with pytest.raises(PlanError, match="update shardkeep"):
        Receipt.from_dict(seal(PLAIN | {"receipt_version": 5}))


def test_flipped_bit_is_always_an_error() -> None:
    text = json.dumps([RECEIPT.to_dict()], indent=1).encode()
    read = 0
    for bit in range(8 * len(text)):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            (data,) = json.loads(bytes(damaged))
            receipt = Receipt.from_dict(data)
        except (ValueError, TypeError, CorruptDataError):
            continue
        # White space between the keys is not content.
        assert receipt == RECEIPT
        read += 1
    assert read < 100


def test_receipts_of_the_ranks_of_a_run_are_parsed_as_single_ones() -> None:
    parser = ReceiptParser()
    many = [replace(RECEIPT, id=f"{rank:032d}", rank=rank % 2) for rank in range(4)]
    many += [replace(one, segments=(*one.segments, Segment(2, 0, 1))) for one in many]
    assert [parser.parse(one.to_dict()) for one in many] == many
    assert parser.parse(PLAIN) == RECEIPT


@pytest.mark.parametrize(
    "change",
    [
        {"rank": 10**6},
        {"rank": -1},
        {"rank": True},
        {"rank": 0.0},
        {"rank": "0"},
        {"id": "0"},
        {"id": 0},
        {"id": {"b": 1, "a": 2}},
        {"id": 'x","rank":1'},
        {"rank": [1]},
        {"extra": {"id": "0" * 32}},
        {"extra": {"rank": 0, "id": "0" * 32}},
    ],
)
def test_id_and_rank_of_each_receipt_are_checked(change: dict[str, Any]) -> None:
    parser = ReceiptParser()
    data = RECEIPT.to_dict()
    parser.parse(data)
    del data["crc32c"]
    for wrong in (data | change, {key: data[key] for key in data if key not in change} | {"a": change}):
        with pytest.raises(PlanError) as alone:
            Receipt.from_dict(seal(wrong))
        with pytest.raises(PlanError) as cached:
            parser.parse(seal(wrong))
        assert str(cached.value) == str(alone.value)


def test_a_flipped_bit_is_an_error_after_the_same_receipt() -> None:
    parser = ReceiptParser()
    data = RECEIPT.to_dict()
    parser.parse(data)
    for key, value in (("rank", 1), ("id", "1" * 32), ("seed", 8), ("crc32c", "00000000")):
        with pytest.raises(CorruptDataError, match="damaged or was edited"):
            parser.parse(data | {key: value})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(list(PLAIN)), JSON)
def test_any_input_is_a_receipt_or_a_plan_error(key: str, value: object) -> None:
    for data in (value, put(PLAIN, (key,), value)):
        try:
            assert isinstance(Receipt.from_dict(data), Receipt)  # type: ignore[arg-type]
        except (PlanError, CorruptDataError) as error:
            assert len(str(error)) < 300


LEGS = st.sampled_from([(), (), (HistoryEntry(2, 4, 16, 3),)])
SEGMENTS = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([0, 0, 8]), st.sampled_from([5, 5, 5, 2]), LEGS), max_size=30
)
MET = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from([5, 7]), st.sampled_from([100, 200]), st.booleans()),
    max_size=20,
)


@given(SEGMENTS, MET)
def test_equal_consecutive_epochs_are_one_entry(steps, met) -> None:  # type: ignore[no-untyped-def]
    segments, epoch = [], 0
    for gap, start, made, history in steps:
        epoch += gap
        segments.append(Segment(epoch, start, made, history))
    damage = tuple(
        Damage(epoch, record, start, start + 9, repaired) for epoch, record, start, repaired in met
    )
    receipt = replace(RECEIPT, segments=tuple(segments), damage=damage)
    again = Receipt.from_dict(json.loads(json.dumps(receipt.to_dict())))
    assert again.segments == receipt.segments
    assert Counter(again.damage) == Counter(receipt.damage)
    assert again.to_dict() == receipt.to_dict()


def test_a_thousand_epochs_are_as_small_as_one() -> None:
    segments = tuple(Segment(epoch, 0, 40) for epoch in range(1000))
    damage = tuple(Damage(epoch, 5, 100, 120, True) for epoch in range(1000))
    receipt = replace(RECEIPT, segments=(*segments, Segment(1000, 0, 3)), damage=damage)
    data = receipt.to_dict()
    assert data["segments"] == [
        {"epoch": 0, "start": 0, "steps": 40, "epochs": 1000},
        {"epoch": 1000, "start": 0, "steps": 3},
    ]
    assert data["repaired"] == [[0, 5, 100, 120, 1000]]
    assert len(json.dumps(data)) < 700
    assert Receipt.from_dict(data) == receipt


def test_number_of_entries_is_limited() -> None:
    many = {"epoch": 0, "start": 0, "steps": 1, "epochs": 999_999}
    with pytest.raises(PlanError, match="epochs"):
        Receipt.from_dict(put(PLAIN, ("segments",), [{**many, "epochs": 2}, many]))
    with pytest.raises(PlanError, match="entries are allowed"):
        Receipt.from_dict({**PLAIN, "skipped": [[0, 5, 1, 2, 2**40]]})
    for wrong in (0, -1, True, 1.5, "2"):
        with pytest.raises(PlanError):
            Receipt.from_dict(put(PLAIN, ("segments",), [{**many, "epochs": wrong}]))
        with pytest.raises(PlanError):
            Receipt.from_dict({**PLAIN, "skipped": [[0, 5, 1, 2, wrong]]})

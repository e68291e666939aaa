"""Descriptions of data sets, to which receipts over many shards refer."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.plan import AuditReport, Dataset, Receipt, Segment, audit
from shardkeep.plan.proof.description import DescribedReceipt, describe, for_receipt, parse_description
from shardkeep.plan.proof.sealed_json import seal

SHARDS = 1000
DATA = Dataset(
    "f" * 32,
    SHARDS * 3,
    tuple(f"train-{i:05d}" for i in range(SHARDS)),
    (3,) * SHARDS,
    tuple(range(100, 100 + SHARDS)),
)
BY_FILES = {"cycle_length": 4, "shuffle": False}


def receipt(rank: int, steps: int, **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"shuffle": "global", "seed": 7, "remainder": "mask", **changes}
    return Receipt(
        id=f"{rank:032d}",
        rank=rank,
        world_size=2,
        batch_size=10,
        dataset=for_receipt(DATA),
        segments=(Segment(0, 0, steps),),
        **settings,
    ).to_dict()


def lost(report: AuditReport) -> str:
    return str(report.epochs[0].lost_names[0])


def test_a_receipt_over_many_shards_is_small_and_refers_to_them() -> None:
    one = receipt(0, 150)
    assert len(json.dumps(one)) < 500
    assert one["dataset"] == {"fingerprint": "f" * 32, "records": 3000}
    assert one["receipt_version"] == 4
    assert Receipt.from_dict(one).to_dict() == one


def test_a_receipt_over_few_shards_has_them_as_before() -> None:
    few = Dataset("f" * 32, 6, ("a", "b"), (3, 3), (9, 9))
    assert for_receipt(few) == few
    text = for_receipt(Dataset("f" * 32, 6, ("a" * 5000, "b"), (3, 3)))
    assert not text.shards


def test_counts_prove_an_epoch_without_the_description() -> None:
    assert audit([receipt(0, 150), receipt(1, 150)]).ok
    report = audit([receipt(0, 150), receipt(1, 149)])
    assert not report.ok
    assert report.epochs[0].lost.records == 10
    assert lost(report).startswith("record ")


def test_the_description_names_the_shards() -> None:
    part = [receipt(0, 150), receipt(1, 149)]
    named = lost(audit([*part, describe(DATA)]))
    assert named.startswith("train-")
    assert lost(audit([describe(DATA), *part])) == named
    assert lost(audit([DescribedReceipt(part[0], lambda: DATA), part[1]])) == named


def test_the_description_is_not_read_for_an_epoch_without_faults() -> None:
    def fail() -> Dataset:
        raise AssertionError

    assert audit([DescribedReceipt(receipt(rank, 150), fail) for rank in range(2)]).ok


def test_whole_files_need_the_description() -> None:
    whole = [receipt(rank, 150, **BY_FILES) for rank in range(2)]
    with pytest.raises(PlanError, match=r"description is missing.*describe_data\(\).*--data"):
        audit(whole)
    assert audit([*whole, describe(DATA)]).ok
    assert not audit([whole[0], receipt(1, 149, **BY_FILES), describe(DATA)]).ok


def test_receipts_with_and_without_shards_are_of_one_data_set() -> None:
    old = Receipt.from_dict(receipt(1, 149))
    with_shards = Receipt(
        id="1" * 32,
        rank=1,
        world_size=2,
        batch_size=10,
        remainder="mask",
        shuffle="global",
        seed=7,
        dataset=DATA,
        segments=old.segments,
    )
    report = audit([receipt(0, 150), with_shards])
    assert not report.problems
    assert lost(report).startswith("train-")


def test_the_description_of_another_size_is_refused() -> None:
    wrong = describe(Dataset(DATA.fingerprint, 3, ("a",), (3,), (9,)))
    with pytest.raises(PlanError, match="has 3 records, the receipts have 3000"):
        audit([receipt(0, 150, **BY_FILES), receipt(1, 150, **BY_FILES), wrong])


def test_a_flipped_bit_of_a_description_is_an_error() -> None:
    text = json.dumps(describe(Dataset("f" * 32, 6, ("a", "b"), (3, 3), (9, 9)))).encode()
    expected, read = json.loads(text), 0
    for bit in range(8 * len(text)):
        damaged = bytearray(text)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            values = json.loads(bytes(damaged))
            parse_description(values)
        except (ValueError, PlanError, CorruptDataError):
            continue
        assert values == expected  # white space between the keys
        read += 1
    assert read < 50


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dataset_version": 2}, "update shardkeep"),
        ({"dataset_version": "1"}, "expected an int"),
        ({"counts": [3]}, "2 dataset.shards and 1 dataset.counts"),
        ({"counts": [3, 4]}, "add up to 7"),
        ({"sizes": [9]}, "2 dataset.shards and 1 dataset.sizes"),
        ({"extra": 1}, "unknown key extra"),
    ],
)
def test_a_wrong_description_is_refused_in_one_line(change: dict[str, Any], words: str) -> None:
    values = describe(Dataset("f" * 32, 6, ("a", "b"), (3, 3), (9, 9)))
    del values["crc32c"]
    with pytest.raises(PlanError, match=words) as caught:
        parse_description(seal(values | change))
    assert str(caught.value).startswith(("the description of a data set", "a description of a data set"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copied_receipt_is_a_plain_dict(copied: Any) -> None:
    one = DescribedReceipt(receipt(0, 3), lambda: DATA)
    assert type(copied(one)) is dict
    assert copied(one) == one

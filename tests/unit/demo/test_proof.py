from __future__ import annotations

import numpy as np
import pytest

from shardkeep.demo.proof import count_uses
from shardkeep.demo.worker import PREDICTION_ROW

COUNTS = (3, 0, 2)


def table(epochs: int = 2) -> np.ndarray:
    rows = [
        (epoch, 1, 0, shard, index, 0, 0, 1.0)
        for epoch in range(epochs)
        for shard, count in enumerate(COUNTS)
        for index in range(count)
    ]
    return np.array(rows, PREDICTION_ROW)


def test_each_record_used_once_is_ok() -> None:
    uses = count_uses(table(), COUNTS, 2)
    assert [(use.records, use.once, use.missing, use.repeated) for use in uses] == [(5, 5, 0, 0)] * 2
    assert all(use.ok for use in uses)


def test_missing_record_is_counted() -> None:
    first, second = count_uses(np.delete(table(), 1), COUNTS, 2)
    assert (first.once, first.missing, first.repeated) == (4, 1, 0)
    assert not first.ok
    assert second.ok


def test_record_used_twice_is_counted() -> None:
    rows = table()
    uses = count_uses(np.append(rows, rows[7]), COUNTS, 2)
    assert [use.ok for use in uses] == [True, False]
    assert (uses[1].once, uses[1].repeated) == (4, 1)


@pytest.mark.parametrize(
    ("field", "value"), [("shard", 3), ("shard", -1), ("shard", 1), ("index", 3), ("index", -1)]
)
def test_row_of_an_unknown_record_counts_as_repeated(field: str, value: int) -> None:
    rows = table()
    rows[field][0] = value
    use = count_uses(rows, COUNTS, 2)[0]
    assert (use.once, use.missing, use.repeated) == (4, 1, 1)
    assert not use.ok


def test_row_of_the_wrong_epoch_is_noticed_in_both_epochs() -> None:
    rows = table()
    rows["epoch"][0] = 1
    assert [(use.missing, use.repeated) for use in count_uses(rows, COUNTS, 2)] == [(1, 0), (0, 1)]


def test_without_rows_every_record_is_missing() -> None:
    (use,) = count_uses(np.empty(0, PREDICTION_ROW), COUNTS, 1)
    assert (use.once, use.missing) == (0, 5)

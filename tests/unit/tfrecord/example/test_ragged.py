from __future__ import annotations

import pickle

import numpy as np
import pytest

from shardkeep.tfrecord import Ragged


def test_rows_are_slices_of_the_values() -> None:
    ragged = Ragged(np.array([1.0, 2.0, 3.0]), np.array([0, 2, 2, 3]))
    assert [row.tolist() for row in ragged] == [[1.0, 2.0], [], [3.0]]
    assert ragged[-1].tolist() == [3.0]
    assert ragged.lengths.tolist() == [2, 0, 1]
    for row in (3, -4):
        with pytest.raises(IndexError):
            ragged[row]
    assert len(Ragged(np.zeros(0), np.zeros(1, np.int64))) == 0


def test_equal_rows_compare_equal_after_pickle() -> None:
    ragged = Ragged(np.arange(3), np.array([0, 1, 3]))
    assert pickle.loads(pickle.dumps(ragged)) == ragged
    assert ragged != Ragged(np.arange(3), np.array([0, 2, 3]))
    assert ragged != 3
    assert "2 rows" in repr(ragged)

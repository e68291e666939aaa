from __future__ import annotations

import numpy as np
import pytest

from shardkeep.errors import PlanError
from shardkeep.loader.place import Place
from shardkeep.plan import Damage


def test_a_place_survives_a_queue_of_arrays() -> None:
    place = Place(3, 10, 14, 4, (Damage(3, 11, 100, 200, True), Damage(3, 12, 200, 300, False)))
    array = place.to_array()
    assert (array.dtype, array.shape) == (np.int64, (14,))
    assert Place.from_array(array) == place
    assert Place.from_array(Place(0, 0, 4, 0).to_array().tolist()) == Place(0, 0, 4, 0)


@pytest.mark.parametrize("length", [0, 3, 5, 8])
def test_an_array_of_another_length_is_refused(length: int) -> None:
    with pytest.raises(PlanError, match="4 numbers"):
        Place.from_array(np.zeros(length, np.int64))

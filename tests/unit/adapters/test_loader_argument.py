from __future__ import annotations

import pytest

from shardkeep.adapters.loader_argument import checked_loader
from shardkeep.errors import PlanError


def test_another_object_than_a_loader_is_refused() -> None:
    with pytest.raises(PlanError, match=r"must be a shardkeep\.Loader, not list"):
        checked_loader([])

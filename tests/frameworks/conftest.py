"""Shards for the tests of a framework."""

from __future__ import annotations

import pytest

from tests.frameworks.exactly_once import write_shards


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return write_shards(tmp_path_factory.mktemp("shards"))

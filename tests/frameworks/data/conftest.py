"""A session of Ray for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.frameworks.data import ray_session as session


@pytest.fixture(scope="module")
def ray_session() -> Iterator[None]:
    with session.ray_session():
        yield

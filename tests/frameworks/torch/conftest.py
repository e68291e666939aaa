"""Worker processes of torch, which have ended before the next test."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _workers_have_ended() -> Iterator[None]:
    """Wait for the workers of a DataLoader: torch waits 5 s for each, then ends it and does not wait."""
    yield
    for child in multiprocessing.active_children():
        child.join(20)

"""Requests without a limit of time, which a busy machine would exceed."""

from __future__ import annotations

import pytest

from shardkeep.viewer.data import histograms, record_file, records


@pytest.fixture(autouse=True)
def no_limit_of_time(monkeypatch):
    """A scan or a search ends only when it is done."""
    for module in (histograms, record_file, records):
        monkeypatch.setattr(module, "BUDGET_S", 60.0)

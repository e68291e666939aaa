"""Event files for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.unit.viewer.runs import event_makers


@pytest.fixture
def write_events():
    """A function that writes an event file of (tag, step, value)."""
    return event_makers.write_events

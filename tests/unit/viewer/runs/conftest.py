"""The child process of HDF5 and event files for the tests of this folder."""

from __future__ import annotations

import html
import re

import pytest

from shardkeep.viewer.hdf5 import processes
from tests.unit.viewer.runs import event_makers


@pytest.fixture(scope="session", autouse=True)
def _kept_child():
    """Start the child before the first test: its imports take longer than most tests."""
    children = processes.children()
    children._idle.put(children._take())
    yield
    children.__exit__()


@pytest.fixture
def shown(page):
    """A function that returns status and text of a page, without its elements."""

    def show(address: str) -> tuple[int, str]:
        answer = page().get(address)
        return answer.status_code, " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())

    return show


@pytest.fixture
def write_events():
    """A function that writes an event file of (tag, step, value)."""
    return event_makers.write_events

"""A client of the page, without a server, and one child process that reads HDF5 for all tests."""

from __future__ import annotations

import html
import pathlib
import re

import pytest
from starlette.testclient import TestClient

from shardkeep.viewer.app import create_app
from shardkeep.viewer.data import damage
from shardkeep.viewer.hdf5 import processes
from shardkeep.viewer.runs import event_files, receipts

TOKEN = "0123456789abcdef"


@pytest.fixture(scope="session", autouse=True)
def _kept_child():
    """Start the child before the first test: its imports take longer than most tests."""
    children = processes.children()
    children._idle.put(children._take())
    yield
    children.__exit__()


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch):
    """Wait for what a thread reads, as a person who loads the page again."""
    for one in (damage, event_files, receipts):
        monkeypatch.setattr(one, "_WAIT_S", 60.0)


@pytest.fixture
def page(tmp_path: pathlib.Path):
    """A function that opens the page of `tmp_path`, or of other paths, and returns a client."""

    def open_page(*paths: pathlib.Path, **options) -> TestClient:
        app = create_app([str(path) for path in paths or (tmp_path,)], TOKEN, **options)
        return TestClient(app, base_url=f"http://127.0.0.1:8000/{TOKEN}/")

    return open_page


@pytest.fixture
def shown(page):
    """A function that returns status and text of a page, without its elements."""

    def show(address: str, *roots: pathlib.Path) -> tuple[int, str]:
        answer = page(*roots).get(address)
        body = answer.text.partition("<main")[2] or answer.text  # a part of a page has none
        return answer.status_code, " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())

    return show

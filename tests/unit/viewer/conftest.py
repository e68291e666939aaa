"""A client of the page, without a server."""

from __future__ import annotations

import pathlib

import pytest
from starlette.testclient import TestClient

from shardkeep.viewer.app import create_app

TOKEN = "0123456789abcdef"


@pytest.fixture
def page(tmp_path: pathlib.Path):
    """A function that opens the page of `tmp_path`, or of other paths, and returns a client."""

    def open_page(*paths: pathlib.Path, **options) -> TestClient:
        app = create_app([str(path) for path in paths or (tmp_path,)], TOKEN, **options)
        return TestClient(app, base_url=f"http://127.0.0.1:8000/{TOKEN}/")

    return open_page

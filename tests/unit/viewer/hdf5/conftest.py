"""One child process for all tests of this folder, and an HDF5 file."""

from __future__ import annotations

import html
import pathlib
import re

import h5py
import pytest

from shardkeep.viewer.hdf5 import processes


@pytest.fixture(scope="session", autouse=True)
def _kept_child():
    """Start the child before the first test: its imports take longer than most tests."""
    children = processes.children()
    children._idle.put(children._take())
    yield
    children.__exit__()


@pytest.fixture
def file(tmp_path: pathlib.Path):
    """An HDF5 file that a test fills, at `tmp_path`."""
    with h5py.File(tmp_path / "a.h5", "w") as opened:
        yield opened


@pytest.fixture
def shown(page):
    """A function that returns status and text of a page, without its elements."""

    def show(address: str, *roots: pathlib.Path) -> tuple[int, str]:
        answer = page(*roots).get(address)
        body = answer.text.partition("<main")[2]
        return answer.status_code, " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())

    return show

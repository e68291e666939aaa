"""An HDF5 file."""

from __future__ import annotations

import pathlib

import h5py
import pytest


@pytest.fixture
def file(tmp_path: pathlib.Path):
    """An HDF5 file that a test fills, at `tmp_path`."""
    with h5py.File(tmp_path / "a.h5", "w") as opened:
        yield opened

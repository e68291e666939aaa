"""Files that are replaced, truncated, deleted or rewritten while a loader reads them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shardkeep import _core
from shardkeep.errors import CorruptDataError, CorruptRecordError, NotFoundError, TruncatedFileError
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Writer
from shardkeep.world import World

YEAR = r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ"
X = {"x": FixedLen()}


def write(path: Path, first: int) -> None:
    with Writer(path, exists="replace") as w:
        for i in range(first, first + 50):
            # The engine keeps smaller shards in memory.
            w.write_example({"x": i, "filling": bytes(2000)})


@pytest.fixture
def loader(tmp_path: Path) -> Any:
    for i in range(2):
        write(tmp_path / f"{i}.tfrecord", 50 * i)
        os.utime(tmp_path / f"{i}.tfrecord", (10**9, 10**9))  # changes are later, however coarse the clock is
    return Loader(str(tmp_path / "*.tfrecord"), X, 5, World(), prefetch=1, threads=1, on_corrupt="skip")


def begun(loader: Loader) -> Any:
    batches = iter(loader)
    assert next(batches)["x"].tolist() == [0, 1, 2, 3, 4]
    return batches


def without_descriptors(path: Path) -> None:
    """Make the descriptor pool close all files."""
    limit = _core.descriptor_usage()["limit"]
    with Writer(path) as w:
        w.write(b"other")
    _core.set_descriptor_limit(1)
    _core.RecordFile(path, _core.scan_frames([path])[0])
    _core.set_descriptor_limit(limit)


def test_file_replaced_while_open_is_read_to_its_end(loader: Loader, tmp_path: Path) -> None:
    batches = begun(loader)
    write(tmp_path / "0.tfrecord", 1000)
    assert next(batches)["x"].tolist() == [5, 6, 7, 8, 9]


def test_file_replaced_while_closed_is_an_error(loader: Loader, tmp_path: Path) -> None:
    batches = begun(loader)
    os.link(tmp_path / "0.tfrecord", tmp_path / "keeps the inode")
    write(tmp_path / "0.tfrecord", 1000)
    without_descriptors(tmp_path / "other")
    with pytest.raises(CorruptDataError, match=f"0.tfrecord.*replaced by another one, last written {YEAR}"):
        list(batches)
    assert loader.position <= 10


def test_file_deleted_while_closed_is_an_error(loader: Loader, tmp_path: Path) -> None:
    batches = begun(loader)
    os.unlink(tmp_path / "0.tfrecord")
    without_descriptors(tmp_path / "other")
    with pytest.raises(NotFoundError, match=rf"0.tfrecord.*is gone now \({YEAR}\)"):
        list(batches)


def test_truncated_file_is_an_error(loader: Loader, tmp_path: Path) -> None:
    batches = begun(loader)
    os.truncate(tmp_path / "0.tfrecord", 500)
    # The time of the change follows, unless the read came before ext4 set it, after the size.
    with pytest.raises(TruncatedFileError, match=r"0.tfrecord: record \d+ at byte .* has only \d+ bytes now"):
        list(batches)


def test_file_rewritten_in_place_is_an_error_and_not_skipped(loader: Loader, tmp_path: Path) -> None:
    batches = begun(loader)
    with open(tmp_path / "0.tfrecord", "r+b") as file:
        file.write(bytes(os.path.getsize(tmp_path / "0.tfrecord")))
    with pytest.raises(CorruptDataError, match=rf"was written to \({YEAR}\)") as caught:
        list(batches)
    assert not isinstance(caught.value, CorruptRecordError)
    assert "skipped" not in loader.receipt()

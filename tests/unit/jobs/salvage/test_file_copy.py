from __future__ import annotations

import errno
import os

import pytest

from shardkeep.errors import CorruptDataError
from shardkeep.files.publish import publish_raw
from shardkeep.jobs.salvage import file_copy
from shardkeep.jobs.salvage.file_copy import copy_into


def _refused(*_):
    raise OSError(errno.EXDEV, "another file system")


@pytest.mark.parametrize(
    "call", [os.copy_file_range, _refused, lambda *_: 0], ids=["kernel", "refused", "nothing"]
)
@pytest.mark.parametrize("size", [0, 1, 1000, 2500])
def test_all_bytes_are_copied(tmp_path, monkeypatch, call, size):
    monkeypatch.setattr(os, "copy_file_range", call)
    monkeypatch.setattr(file_copy, "_BLOCK_BYTES", 1000)
    data = os.urandom(size)
    (tmp_path / "a").write_bytes(data)
    ticks = []
    with publish_raw(tmp_path / "b") as file:
        copy_into(str(tmp_path / "a"), file, ticks.append)
    assert (tmp_path / "b").read_bytes() == data and sum(ticks) == size


@pytest.mark.parametrize("size", [500, 3000])
def test_a_file_that_changes_is_not_copied(tmp_path, monkeypatch, size):
    monkeypatch.setattr(file_copy, "_BLOCK_BYTES", 1000)
    (tmp_path / "a").write_bytes(b"x" * 2000)

    def change(_):
        (tmp_path / "a").write_bytes(b"y" * size)

    with (
        pytest.raises(CorruptDataError, match="changed while it was copied"),
        publish_raw(tmp_path / "b") as file,
    ):
        copy_into(str(tmp_path / "a"), file, change)
    assert os.listdir(tmp_path) == ["a"]

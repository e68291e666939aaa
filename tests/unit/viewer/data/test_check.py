"""Checks in threads: results for each version, an end when no page asks."""

from __future__ import annotations

import pytest

from shardkeep.viewer.data import check
from shardkeep.viewer.data.check import check_of

from .record_makers import write_examples


def test_a_version_is_checked_once(tmp_path):
    path = write_examples(tmp_path / "a.tfrecord", 5)
    assert check_of(str(path), begin=False) is None
    first = check_of(str(path), begin=True)
    first.ask(60)
    assert first.result.items("kept") == 5 and first.done_bytes == path.stat().st_size
    assert check_of(str(path), begin=True) is first
    write_examples(tmp_path / "b.tfrecord", 6).replace(path)
    assert check_of(str(path), begin=False) is None


def test_a_check_that_no_page_needs_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "_FORGOTTEN_S", -1.0)
    path = write_examples(tmp_path / "a.tfrecord", 5)
    found = check_of(str(path), begin=True)
    found.ask(60)
    assert found.is_done and "closed" in found.error
    monkeypatch.setattr(check, "_FORGOTTEN_S", 60.0)
    assert check_of(str(path), begin=True) is not found


@pytest.mark.parametrize("content", [b"", b"plain text"])
def test_another_file_is_an_error_or_has_no_parts(tmp_path, content):
    (tmp_path / "a.tfrecord").write_bytes(content)
    found = check_of(str(tmp_path / "a.tfrecord"), begin=True)
    found.ask(60)
    assert found.is_done

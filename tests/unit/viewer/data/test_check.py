"""Checks in threads: results for each version, an end when no page asks."""

from __future__ import annotations

import pytest

from shardkeep.viewer.data import check
from shardkeep.viewer.data.check import check_of

from .record_makers import write_examples


def test_a_version_is_checked_once(tmp_path):
    path = write_examples(tmp_path / "a.tfrecord", 5)
    first = check_of(str(path))
    first.ask(0, begin=False)
    assert not first.is_begun
    first.ask(60, begin=True)
    result = first.result
    assert result.items("kept") == 5 and first.done_bytes == path.stat().st_size
    first.ask(60, begin=True)
    assert check_of(str(path)) is first and first.result is result
    write_examples(tmp_path / "b.tfrecord", 6).replace(path)
    assert not check_of(str(path)).is_begun


def test_a_check_that_no_page_needs_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(check, "_FORGOTTEN_S", -1.0)
    found = check_of(str(write_examples(tmp_path / "a.tfrecord", 5)))
    found.ask(60, begin=True)
    assert found.is_done and "closed" in found.error
    monkeypatch.setattr(check, "_FORGOTTEN_S", 60.0)
    found.ask(60, begin=False)
    assert "closed" in found.error
    found.ask(60, begin=True)
    assert found.result is not None and not found.error


@pytest.mark.parametrize("content", [b"", b"plain text"])
def test_another_file_is_an_error_or_has_no_parts(tmp_path, content):
    (tmp_path / "a.tfrecord").write_bytes(content)
    found = check_of(str(tmp_path / "a.tfrecord"))
    found.ask(60, begin=True)
    assert found.is_done

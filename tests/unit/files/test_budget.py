from __future__ import annotations

from pathlib import Path

from shardkeep.files import budget
from shardkeep.tfrecord import Reader, Writer


def test_descriptors_of_readers_are_counted(tmp_path: Path) -> None:
    with Writer(tmp_path / "x") as w:
        w.write(b"a")
        w.write(b"b")
    before = budget()
    assert before.limit >= 1
    assert before.reserve >= 0
    reader = Reader(tmp_path / "x")
    assert reader[1] == b"b"
    during = budget()
    assert during.open == before.open + 1
    assert during.peak >= during.open
    del reader
    assert budget().open == before.open

"""Event files that TensorFlow wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shardkeep.tfrecord import read_scalars
from tests.tensorflow_child import TensorFlow

HERE = Path(__file__).parent


def check_files(folder: Path) -> None:
    facts = json.loads((folder / "facts.json").read_text())
    columns = read_scalars(folder)
    names = ("run", "tag", "step", "value")
    rows = [list(row) for row in zip(*(columns[name].tolist() for name in names), strict=True)]
    assert sorted(rows) == sorted(facts["scalars"])
    for run in ("v1", "v2/train"):
        mine = [row for row in rows if row[0] == run]
        assert mine == [row for row in facts["scalars"] if row[0] == run], "in the order of the file"
    assert (columns["wall_time"] > 1.7e9).all()


def test_stored_files_of_tensorflow_are_read() -> None:
    check_files(HERE / "data" / "events")


@pytest.mark.tensorflow
def test_new_files_of_tensorflow_are_read(tensorflow: TensorFlow, tmp_path: Path) -> None:
    tensorflow.run((HERE / "make_event_files.py").read_text(), tmp_path)
    check_files(tmp_path)

"""The command that repairs a file."""

import shlex

import pytest

from shardkeep._paths_in_messages import repair_command
from shardkeep.errors import CorruptRecordError, TruncatedFileError


@pytest.mark.parametrize(
    ("path", "output"),
    [
        ("a.tfrecord", "a.repaired.tfrecord"),
        ("data/a b.h5", "data/a b.repaired.h5"),
        ("x/train.tfrecord.GZ", "x/train.repaired.tfrecord.GZ"),
        ("train-00003-of-00008", "train-00003-of-00008.repaired"),
        ("$(rm -r x).tfrecord", "$(rm -r x).repaired.tfrecord"),
    ],
)
def test_the_output_is_next_to_the_file(path: str, output: str) -> None:
    assert shlex.split(repair_command(path)) == ["shardkeep", "repair", path, output]


def test_a_segment_is_repaired_with_its_run() -> None:
    assert repair_command("/r/run 1/rank-00000/00000001-step-1.h5") == (
        "shardkeep repair '/r/run 1' '/r/run 1.repaired'"
    )
    assert repair_command("rank-00000/00000001-step-1.h5").startswith("shardkeep repair rank-00000/")


@pytest.mark.parametrize("kind", [CorruptRecordError, TruncatedFileError])
def test_an_error_about_damage_has_the_command_as_a_note(kind: type[CorruptRecordError], tmp_path) -> None:
    path = tmp_path / "a.tfrecord"
    assert not hasattr(kind("damaged", path=path), "__notes__")
    path.touch()
    (note,) = kind("damaged", path=path).__notes__
    assert note.endswith(f": shardkeep repair {path} {tmp_path}/a.repaired.tfrecord")

from __future__ import annotations

import gzip
import os
import warnings
from pathlib import Path

import numpy as np
import pytest

from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    FormatError,
    NotFoundError,
    PlanError,
    TruncatedFileError,
)
from shardkeep.tfrecord import Writer, encode_example, read_scalars
from tests.descriptors import open_descriptors
from tests.unit.tfrecord.events.test_message import event, simple, version_event
from tests.unit.tfrecord.test_reader import frame

FRAMES = [frame(version_event())] + [
    frame(event(10.0 + step, step, simple("loss", 1 / 2**step), simple("lr", 0.5))) for step in range(5)
]
STARTS = np.cumsum([0] + [len(one) for one in FRAMES]).tolist()


def event_file(folder: Path, content: bytes, name: str = "events.out.tfevents.1.host") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_bytes(content)
    return path


def steps(columns: dict[str, np.ndarray]) -> list[int]:
    return columns["step"][columns["tag"] == "loss"].tolist()


def test_columns_have_the_logged_values(tmp_path: Path) -> None:
    path = event_file(tmp_path, b"".join(FRAMES))
    columns = read_scalars(path)
    assert list(columns) == ["run", "tag", "step", "wall_time", "value", "file"]
    assert columns["tag"].tolist() == ["loss", "lr"] * 5
    assert columns["step"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert columns["wall_time"][:3].tolist() == [10.0, 10.0, 11.0]
    assert columns["value"][:4].tolist() == [1.0, 0.5, 0.5, 0.5]
    assert set(columns["file"]) == {str(path)}
    assert set(columns["run"]) == {"."}
    assert {name: column.dtype.name for name, column in columns.items()} == {
        "run": "object", "tag": "object", "step": "int64", "wall_time": "float64", "value": "float64",
        "file": "object",
    }  # fmt: skip


def test_tags_are_named_exactly(tmp_path: Path) -> None:
    path = event_file(tmp_path, b"".join(FRAMES))
    assert set(read_scalars(path, tags="lr")["tag"]) == {"lr"}
    assert len(read_scalars(path, tags=["lr", "loss"])["tag"]) == 10
    nothing = read_scalars(path, tags=["l"])
    assert {len(column) for column in nothing.values()} == {0}
    assert nothing["step"].dtype == np.int64


def test_runs_are_folders_and_restarts_keep_everything(tmp_path: Path) -> None:
    event_file(tmp_path / "b" / "train", b"".join(FRAMES), "events.out.tfevents.2.host")
    event_file(tmp_path / "b" / "train", b"".join(FRAMES[:3]), "events.out.tfevents.1.host")
    event_file(tmp_path / "a", b"".join(FRAMES[:2]))
    event_file(tmp_path, b"")
    event_file(tmp_path, b"no event", "notes.txt")
    event_file(tmp_path, b"no event", "events.out.tfevents.1.host.skidx")
    os.symlink(tmp_path, tmp_path / "b" / "loop")
    columns = read_scalars(tmp_path, tags="loss")
    assert list(zip(columns["run"], columns["step"], strict=True)) == [
        ("a", 0), ("b/train", 0), ("b/train", 1), *(("b/train", step) for step in range(5)),
    ]  # fmt: skip


def test_a_linked_folder_is_searched(tmp_path: Path) -> None:
    event_file(tmp_path / "elsewhere", b"".join(FRAMES))
    (tmp_path / "logs").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "logs" / "run")
    assert set(read_scalars(tmp_path / "logs")["run"]) == {"run"}


def test_compressed_files_are_read(tmp_path: Path) -> None:
    content = gzip.compress(b"".join(FRAMES))
    assert steps(read_scalars(event_file(tmp_path, content))) == [0, 1, 2, 3, 4]
    with pytest.raises(TruncatedFileError):
        read_scalars(event_file(tmp_path, content[:-3]), on_corrupt="skip")


# -- damage ------------------------------------------------------------------------------------------


def damaged(tmp_path: Path, offset_bytes: int) -> Path:
    content = bytearray(b"".join(FRAMES))
    content[offset_bytes] ^= 8
    return event_file(tmp_path, bytes(content))


@pytest.mark.parametrize("into", [3, 20])
def test_damage_is_an_error_that_names_the_place(tmp_path: Path, into: int) -> None:
    path = damaged(tmp_path, STARTS[2] + into)
    with pytest.raises(CorruptRecordError, match=rf"{path.name}: record 2 at byte {STARTS[2]}:") as caught:
        read_scalars(path)
    assert (caught.value.path, caught.value.record, caught.value.offset_bytes) == (str(path), 2, STARTS[2])


@pytest.mark.parametrize("into", [3, 20])
def test_skip_loses_one_record_and_says_so(tmp_path: Path, into: int) -> None:
    path = damaged(tmp_path, STARTS[2] + into)
    lost = len(FRAMES[2])
    said = rf"record 2 at byte {STARTS[2]}: .* {lost} bytes are skipped, the next is at byte {STARTS[3]}"
    with pytest.warns(RuntimeWarning, match=said):
        assert steps(read_scalars(path, on_corrupt="skip")) == [0, 2, 3, 4]


def test_each_damaged_range_warns_once(tmp_path: Path) -> None:
    content = bytearray(b"".join(FRAMES))
    content[STARTS[1] + 2] ^= 1
    content[STARTS[3] + 20] ^= 1
    del content[STARTS[5] + 30 :]
    path = event_file(tmp_path, bytes(content))
    told: list[CorruptDataError] = []
    assert steps(read_scalars(path, on_corrupt=told.append)) == [1, 3]
    assert [(type(error), error.offset_bytes) for error in told] == [
        (CorruptRecordError, STARTS[1]),
        (CorruptRecordError, STARTS[3]),
        (TruncatedFileError, STARTS[5]),
    ]
    assert "none is whole after it" in str(told[2])


def test_a_damaged_first_record_is_skipped_too(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="record 0 at byte 0"):
        assert steps(read_scalars(damaged(tmp_path, 2), on_corrupt="skip")) == [0, 1, 2, 3, 4]


def test_a_hole_is_skipped(tmp_path: Path) -> None:
    content = b"".join(FRAMES)
    path = event_file(tmp_path, content[: STARTS[3]] + bytes(4000) + content[STARTS[3] :])
    with pytest.warns(RuntimeWarning, match=r"4,000 bytes are skipped"):
        assert steps(read_scalars(path, on_corrupt="skip")) == [0, 1, 2, 3, 4]


def test_record_that_is_not_an_event_is_named(tmp_path: Path) -> None:
    path = event_file(tmp_path, FRAMES[0] + frame(b"\x0a\x7f") + FRAMES[1])
    with pytest.raises(CorruptRecordError, match=r"record 1 at byte 40 is not a tensorflow\.Event"):
        read_scalars(path)
    with pytest.warns(RuntimeWarning, match=r"not a tensorflow\.Event"):
        assert steps(read_scalars(path, on_corrupt="skip")) == [0]


# -- live --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tail", [b"", FRAMES[3][:5], FRAMES[3][:-1], bytes(100), FRAMES[3][:30] + bytes(5)])
def test_a_live_file_may_end_anywhere(tmp_path: Path, tail: bytes) -> None:
    path = event_file(tmp_path, b"".join(FRAMES[:3]) + tail)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert steps(read_scalars(path, live=True)) == [0, 1]
    if tail:
        with pytest.raises(CorruptDataError) as caught:
            read_scalars(path)
        assert caught.value.offset_bytes == STARTS[3]


def test_live_still_reports_damage(tmp_path: Path) -> None:
    with pytest.raises(CorruptRecordError):
        read_scalars(damaged(tmp_path, STARTS[2] + 20), live=True)
    with pytest.raises(CorruptRecordError):
        read_scalars(damaged(tmp_path, STARTS[5] + 20), live=True)
    path = event_file(tmp_path, FRAMES[0] + bytes(200) + FRAMES[1])
    with pytest.raises(CorruptRecordError, match="NUL"):
        read_scalars(path, live=True)


def test_torn_record_before_others_is_damage(tmp_path: Path) -> None:
    """As when a restarted writer appends to a file whose tail was torn."""
    path = event_file(tmp_path, FRAMES[0] + frame(b"x" * 5000)[:100] + FRAMES[1])
    with pytest.raises(CorruptRecordError, match="others were written after it"):
        read_scalars(path, live=True)
    with pytest.warns(RuntimeWarning, match="100 bytes are skipped"):
        assert steps(read_scalars(path, on_corrupt="skip")) == [0]


# -- what is none ------------------------------------------------------------------------------------


def test_other_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no such file"):
        read_scalars(tmp_path / "nothing")
    with pytest.raises(NotFoundError, match="tfevents"):
        read_scalars(tmp_path)
    with pytest.raises(FormatError, match="zip"):
        read_scalars(event_file(tmp_path, b"PK\x03\x04" + bytes(100)))
    late = (
        bytes.fromhex("09 0000000000000040 10 05 2a 0d 0a 0b 0a 04") + b"loss" + bytes.fromhex("15 0000803e")
    )
    foreign = bytes.fromhex("09 000000000000f03f 1a 11") + b"Mindspore.Event:1"
    for record, content in {
        encode_example({"a": 1}): "tf.train.Example",
        b"plain text": "text",
        b"": "tf.train.Example",
        b"\xff\xff": "of no known form",
        late: "tensorflow.Event",
        foreign: "tensorflow.Event",
    }.items():
        with Writer(tmp_path / "x", exists="replace") as w:
            w.write(record)
            w.write(late)
        for mode in ("raise", "skip"):
            with pytest.raises(
                FormatError, match=f"not an event file: record 0 is {content}, .*brain.Event:2"
            ):
                read_scalars(tmp_path / "x", on_corrupt=mode)  # type: ignore[arg-type]


def test_a_damaged_first_record_is_skipped_only_before_events(tmp_path: Path) -> None:
    path = damaged(tmp_path, STARTS[0] + 20)
    with pytest.warns(RuntimeWarning, match="skipped"):
        assert len(read_scalars(path, on_corrupt="skip")["value"])
    with Writer(tmp_path / "x") as w:
        w.write(b"first")
        w.write_example({"a": 1})
    content = bytearray((tmp_path / "x").read_bytes())
    content[13] ^= 1
    (tmp_path / "x").write_bytes(content)
    with pytest.warns(RuntimeWarning), pytest.raises(FormatError, match=r"record 1 is tf\.train\.Example"):
        read_scalars(tmp_path / "x", on_corrupt="skip")


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="on_corrupt"):
        read_scalars(tmp_path, on_corrupt="ignore")  # type: ignore[arg-type]


def test_no_descriptor_is_left_after_damage(tmp_path: Path) -> None:
    path = damaged(tmp_path, STARTS[2] + 20)
    with pytest.raises(CorruptRecordError):
        read_scalars(path)
    before = open_descriptors()
    for _ in range(20):
        with pytest.raises(CorruptRecordError):
            read_scalars(path)
    assert not open_descriptors() - before

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptRecordError, FormatError, NotFoundError, PlanError, SchemaError
from shardkeep.jobs import RecordItem, RowItem, cat
from shardkeep.jobs.cat import example_or_none
from shardkeep.tfrecord import Writer, encode_example
from tests.odd_files import GOOD


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "a.tfrecord"
    with Writer(path) as writer:
        for number in range(10):
            writer.write(b"record %d" % number)
    return path


@pytest.mark.parametrize(
    ("skip", "limit", "expected"),
    [(0, None, range(10)), (7, None, range(7, 10)), (2, 3, range(2, 5)), (0, 0, ()), (11, 1, ())],
)
def test_records(records: Path, skip: int, limit: int | None, expected: range) -> None:
    items = [item for item in cat(records, skip=skip, limit=limit) if isinstance(item, RecordItem)]
    assert [item.record for item in items] == list(expected)
    assert [item.data for item in items] == [b"record %d" % number for number in expected]
    assert all(item.features is None for item in items)


def test_record_to_dict(tmp_path: Path) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.write(b"\x00\xff")
        writer.write_example({"label": 3, "w": np.array([0.1], "f4"), "image": b"\x89P"})
    plain, example = (item.to_dict() for item in cat(tmp_path / "a"))
    assert plain == {"record": 0, "size_bytes": 2, "content": None, "data": "AP8="}
    size_bytes = example.pop("size_bytes")
    assert size_bytes > 10
    assert example == {
        "record": 1,
        "features": {
            "label": {"type": "int64", "values": [3]},
            "w": {"type": "float32", "values": [0.1]},
            "image": {"type": "bytes", "values": ["iVA="]},
        },
    }
    json.dumps(example, allow_nan=False)


def test_what_is_no_example() -> None:
    assert example_or_none(encode_example({})) == {}
    assert example_or_none(encode_example({"a": 1})) is not None
    assert example_or_none(b"record 7") is None
    # A tensorflow.Event: wall_time and file_version, both unknown fields of an Example.
    assert example_or_none(b"\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x1a\x0dbrain.Event:2") is None


def test_damage_is_met_behind_what_was_whole(records: Path) -> None:
    content = bytearray(records.read_bytes())
    content[3 * 24 + 12] ^= 1
    records.write_bytes(content)
    items = cat(records)
    assert [next(items) for _ in range(3)]
    with pytest.raises(CorruptRecordError) as caught:
        next(items)
    assert caught.value.record == 3


def test_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["x"] = np.arange(5)
    assert list(cat(path, skip=1, limit=2)) == [RowItem("/x", 1, 1), RowItem("/x", 2, 2)]
    assert next(cat(path)).to_dict() == {"dataset": "/x", "row": 0, "value": 0}
    with pytest.raises(SchemaError):
        list(cat(path, dataset="y"))


def test_other_files_are_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        cat(tmp_path / "a")
    with pytest.raises(FormatError, match="found a folder"):
        cat(tmp_path)


def test_empty_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    assert list(cat(tmp_path / "a")) == []


def test_numbers_of_variable_length_in_the_other_byte_order(tmp_path: Path) -> None:
    base = np.dtype("i4").newbyteorder()
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", (2,), h5py.vlen_dtype(base))
        file["x"][1] = np.array([1, 2], base)
    assert [item.to_dict()["value"] for item in cat(tmp_path / "a.h5")] == [[], [1, 2]]


def test_a_virtual_dataset_is_never_filled_in(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "s.h5", "w") as file:
        file["x"] = np.arange(1, 5)
    with h5py.File(tmp_path / "v.h5", "w") as file:
        layout = h5py.VirtualLayout((4,), "i8")
        layout[:] = h5py.VirtualSource("s.h5", "x", (4,))
        file.create_virtual_dataset("g/x", layout)
    items = [item for item in cat(tmp_path / "v.h5", skip=1, limit=2) if isinstance(item, RowItem)]
    assert [(item.dataset, item.row, item.value) for item in items] == [("/g/x", 1, 2), ("/g/x", 2, 3)]
    (tmp_path / "s.h5").unlink()
    with pytest.raises(NotFoundError, match=r"s\.h5"):
        list(cat(tmp_path / "v.h5"))


def test_damage_is_skipped_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(GOOD[:700] + bytes([GOOD[700] ^ 1]) + GOOD[701:])
    with pytest.warns(RuntimeWarning, match="record 3 at byte 648 was skipped"):
        items = list(cat(path, skip=2, limit=2, on_corrupt="skip"))
    assert [item.record for item in items if isinstance(item, RecordItem)] == [2, 4]
    with pytest.warns(RuntimeWarning, match="record 3 at byte 648 was repaired"):
        assert len(list(cat(path, on_corrupt="repair"))) == 10
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = [1, 2]
    with pytest.raises(PlanError, match=r"on_corrupt=\"skip\" is for records of TFRecord files"):
        cat(tmp_path / "a.h5", on_corrupt="skip")
    with pytest.raises(PlanError, match="on_corrupt"):
        cat(path, on_corrupt="other")  # type: ignore[arg-type]

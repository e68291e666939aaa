from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from shardkeep.errors import MissingExtraError, SchemaError
from shardkeep.loader import Loader
from shardkeep.tfrecord import (
    FixedLen,
    Image,
    Ragged,
    Reader,
    VarLen,
    Writer,
    read_arrow,
    read_columns,
    to_arrow,
)
from shardkeep.tfrecord.example import columns
from shardkeep.tfrecord.example.features import Feature
from shardkeep.world import World
from tests.waiting import PATIENCE_S

pa = pytest.importorskip("pyarrow")

FEATURES: dict[str, Feature] = {
    "i": FixedLen(),
    "f": FixedLen((3,), "float32"),
    "m": FixedLen((2, 3), "int64"),
    "none": FixedLen((0,), "int64"),
    "s": FixedLen((), "bytes"),
    "s2": FixedLen((2,), "bytes"),
    "s22": FixedLen((2, 2), "bytes"),
    "s0": FixedLen((0,), "bytes"),
    "v": VarLen("float32"),
    "w": VarLen("bytes"),
    "p": Image(3, "uint8"),
}


def picture(value: int) -> bytes:
    out = io.BytesIO()
    PillowImage.fromarray(np.full((4, 5, 3), value, np.uint8)).save(out, "PNG")
    return out.getvalue()


def example(i: int) -> dict[str, Any]:
    return {
        "i": i - 2,
        "f": [i, 0.5, -1.0],
        "m": np.arange(6) * i,
        "none": np.array([], "int64"),
        "s": b"s" * i,
        "s2": [b"", b"b%d" % i],
        "s22": [b"%d" % (i * k) for k in range(4)],
        "s0": np.array([], "S"),
        "v": np.arange(i % 4, dtype=np.float32),
        "w": [b"w"] * (i % 3) if i % 3 else np.array([], "S"),
        "p": picture(i),
    }


def write(path: Path, count: int, compression: str | None = None) -> Path:
    with Writer(path, compression=compression) as writer:
        for i in range(count):
            writer.write_example(example(i))
    return path


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("count", [0, 1, 30])
def test_table_equals_the_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, compression: str | None
) -> None:
    monkeypatch.setattr(columns, "_BATCH_ROWS", 7)
    path = write(tmp_path / "a", count, compression)
    table = read_arrow([path], FEATURES)
    table.validate(full=True)
    assert table.num_rows == count
    assert table.column_names == list(FEATURES)
    for name, column in read_columns(path, FEATURES).items():
        chunked = table.column(name)
        assert (chunked.num_chunks, chunked.null_count) == (1, 0)
        if name in ("m", "p"):
            if count:
                np.testing.assert_array_equal(chunked.chunk(0).to_numpy_ndarray(), column)
        else:
            assert chunked.to_pylist() == [
                row.tolist() if isinstance(row, (np.ndarray, np.generic)) else row for row in column
            ]


def test_columns_have_the_documented_types(tmp_path: Path) -> None:
    schema = read_arrow(write(tmp_path / "a", 2), FEATURES).schema
    assert {field.name: field.type for field in schema} == {
        "i": pa.int64(),
        "f": pa.list_(pa.float32(), 3),
        "m": pa.fixed_shape_tensor(pa.int64(), [2, 3]),
        "none": pa.list_(pa.int64(), 0),
        "s": pa.large_binary(),
        "s2": pa.list_(pa.large_binary(), 2),
        "s22": pa.list_(pa.list_(pa.large_binary(), 2), 2),
        "s0": pa.list_(pa.large_binary(), 0),
        "v": pa.large_list(pa.float32()),
        "w": pa.large_list(pa.large_binary()),
        "p": pa.fixed_shape_tensor(pa.uint8(), [4, 5, 3]),
    }


def test_table_outlives_its_arrays_and_is_written_to_parquet(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    features = {name: feature for name, feature in FEATURES.items() if name not in ("none", "s0")}
    table = read_arrow(write(tmp_path / "a", 10), features)
    pq.write_table(table, tmp_path / "a.parquet")
    assert pq.read_table(tmp_path / "a.parquet").equals(table)


def test_strings_are_read_without_python_objects(tmp_path: Path) -> None:
    # 33 bytes of Python object and 8 of pointer for each string would be 40 MB more.
    path = tmp_path / "a"
    with Writer(path) as writer:
        for _ in range(20_000):
            writer.write_example({"w": [b"0123456789"] * 50})
    code = """
import sys
from shardkeep.tfrecord import VarLen, read_arrow

def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

import pyarrow
before = peak_bytes()
table = read_arrow(sys.argv[1], {"w": VarLen("bytes")})
print(table.nbytes, peak_bytes() - before)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    size, needed = map(int, done.stdout.split())
    assert size == pytest.approx(20_000 * (50 * (10 + 8) + 8), rel=0.01)
    assert needed < size * 1.2 + (40 << 20)  # 46 to 49 MB were seen, and 87 with objects


def test_errors_are_those_of_read_columns(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="expected float32"):
        read_arrow(write(tmp_path / "a", 3), {"i": FixedLen((), "float32")})


def test_missing_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'shardkeep\[arrow\]'"):
        read_arrow(tmp_path / "none", {"i": FixedLen()})


def test_text_is_string_and_nested_has_no_extension_type(tmp_path: Path) -> None:
    table = read_arrow(write(tmp_path / "a", 3), FEATURES, text=["s", "w", "s22"], nested=True)
    table.validate(full=True)
    types = {field.name: field.type for field in table.schema}
    assert types["s"] == pa.large_string()
    assert types["w"] == pa.large_list(pa.large_string())
    assert types["s22"] == pa.list_(pa.list_(pa.large_string(), 2), 2)
    assert types["m"] == pa.list_(pa.list_(pa.int64(), 3), 2)
    assert types["p"] == pa.list_(pa.list_(pa.list_(pa.uint8(), 3), 5), 4)
    assert table.column("s")[2].as_py() == "ss"
    assert table.column("m")[1].as_py() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (["z"], "column 'z', which is not"),
        (["i"], "holds int64"),
        (["p"], "holds uint8"),
        ("p", "holds uint8"),
    ],
)
def test_a_column_that_cannot_be_text_is_refused(tmp_path: Path, text: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        read_arrow(write(tmp_path / "a", 1), FEATURES, text=text)
    with pytest.raises(SchemaError, match=message):
        to_arrow(read_columns(tmp_path / "a", FEATURES), text=text)


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.write_example({"s": b"\xff"})
    with pytest.raises(SchemaError, match="'s' is not text"):
        read_arrow(tmp_path / "a", {"s": FixedLen((), "bytes")}, text=["s"])


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("count", [0, 1, 30])
def test_columns_become_the_table_of_read_arrow(tmp_path: Path, count: int, nested: bool) -> None:
    path = write(tmp_path / "a", count)
    table = to_arrow(read_columns(path, FEATURES), text=["w"], nested=nested)
    table.validate(full=True)
    assert table.equals(read_arrow(path, FEATURES, text=["w"], nested=nested))


def test_padding_of_a_batch_is_left_out(tmp_path: Path) -> None:
    loader = Loader(write(tmp_path / "a", 5), FEATURES, 3, World(0, 1))
    tables = [to_arrow(batch) for batch in loader]
    assert [table.num_rows for table in tables] == [3, 2]
    assert pa.concat_tables(tables).equals(read_arrow(tmp_path / "a", FEATURES))
    raw = Loader(tmp_path / "a", None, 4, World(0, 1))
    assert [row for batch in raw for row in to_arrow(batch)["record"].to_pylist()] == list(
        Reader(tmp_path / "a")
    )


def test_views_of_columns_become_tables() -> None:
    ragged = Ragged(np.arange(6), np.array([0, 2, 3, 6]))[1:]
    columns = {"r": ragged, "t": np.arange(12).reshape(6, 2)[::3], "b": np.array([True, False])}
    assert to_arrow(columns).to_pydict() == {
        "r": [[2], [3, 4, 5]],
        "t": [[0, 1], [6, 7]],
        "b": [True, False],
    }


@pytest.mark.parametrize("value", [[1, 2], 3, np.int64(3), np.array(3)])
def test_a_column_that_is_no_array_is_refused(value: Any) -> None:
    with pytest.raises(SchemaError, match="'x' must be an array or a Ragged"):
        to_arrow({"x": value})


def test_objects_that_are_not_bytes_are_refused() -> None:
    with pytest.raises(SchemaError, match="'x' must hold bytes"):
        to_arrow({"x": np.array([b"a", 1], object)})

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.tfrecord import Reader, Writer, decode_example

pa = pytest.importorskip("pyarrow")


class Exported:
    """A table that only has the Arrow PyCapsule interface, as a DataFrame of Polars."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def written(path: Path, table: Any) -> list[dict[str, list[Any]]]:
    with Writer(path) as writer:
        writer.write_examples(table)
    return [{name: list(values) for name, values in decode_example(one).items()} for one in Reader(path)]


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([1, None, 3], "int32", [[1], [], [3]]),
        ([0.5, None], "double", [[0.5], []]),
        ([True, False, None], "bool", [[1], [0], []]),
        (["a", None, "b"], "string", [[b"a"], [], [b"b"]]),
        ([b"a", b""], "large_binary", [[b"a"], [b""]]),
        ([b"ab", b"cd"], pa.binary(2), [[b"ab"], [b"cd"]]),
        (["a", "b", "a"], pa.dictionary(pa.int8(), pa.string()), [[b"a"], [b"b"], [b"a"]]),
        ([[1], None, [], [2, 3]], pa.list_(pa.int64()), [[1], [], [], [2, 3]]),
        ([[1, 2], None, [5, 6]], pa.list_(pa.int64(), 2), [[1, 2], [], [5, 6]]),
        ([["a"], ["b", "c"]], pa.large_list(pa.large_string()), [[b"a"], [b"b", b"c"]]),
        ([[[1], [2, 3]], [], [[4]]], pa.list_(pa.list_(pa.int64())), [[1, 2, 3], [], [4]]),
        ([[[1, 2], [3, 4]]], pa.list_(pa.list_(pa.int64(), 2), 2), [[1, 2, 3, 4]]),
    ],
)
def test_each_type_is_stored(tmp_path: Path, values: Any, kind: Any, expected: Any) -> None:
    array = pa.array(values, kind)
    whole = pa.table({"x": array})
    halves = pa.table({"x": pa.chunked_array([array[:1], array[1:]])})
    for number, table in enumerate((whole, halves, Exported(whole))):
        assert [row["x"] for row in written(tmp_path / str(number), table)] == expected
    assert [row["x"] for row in written(tmp_path / "slice", whole.slice(1))] == expected[1:]


def test_tensors_are_stored_flat(tmp_path: Path) -> None:
    storage = pa.array([[1, 2, 3, 4], [5, 6, 7, 8]], pa.list_(pa.int64(), 4))
    tensors = pa.ExtensionArray.from_storage(pa.fixed_shape_tensor(pa.int64(), [2, 2]), storage)
    rows = written(tmp_path / "a", pa.table({"x": tensors}))
    assert [row["x"] for row in rows] == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_a_table_without_rows_is_stored(tmp_path: Path) -> None:
    assert written(tmp_path / "a", pa.table({"x": pa.array([], pa.int64())})) == []


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (pa.array([datetime.date(2020, 1, 1)]), "'x' is date32"),
        (pa.array([{"a": 1}]), "'x' is struct"),
        (pa.array([None]), "'x' is null"),
        (pa.array([[1, None]]), "null in a list"),
        (pa.array([[[1], None]]), "null in a list"),
    ],
)
def test_what_an_example_cannot_hold_is_refused(tmp_path: Path, array: Any, message: str) -> None:
    with Writer(tmp_path / "a") as writer:
        with pytest.raises(SchemaError, match=message):
            writer.write_examples(pa.table({"x": array}))
        assert writer.records == 0


def test_floats_beyond_float32_are_stored_as_those_of_numpy(tmp_path: Path) -> None:
    [row] = written(tmp_path / "a", pa.table({"x": [1e300]}))
    assert row["x"] == [np.inf]

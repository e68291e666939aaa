from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from shardkeep.errors import PlanError, SchemaError
from shardkeep.tfrecord import Ragged, Reader, Writer, encode_example

ROWS = st.integers(1, 5)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS, data=st.data())
def test_rows_are_what_write_example_writes(rows: int, data: st.DataObject, tmp_path: Path) -> None:
    shapes = st.lists(st.integers(1, 3), max_size=2).map(lambda rest: (rows, *rest))
    columns: dict[str, Any] = {
        "i": data.draw(hnp.arrays(np.int64, shapes)),
        "small": data.draw(hnp.arrays(np.uint8, shapes)),
        "b": data.draw(hnp.arrays(np.bool_, rows)),
        "f": data.draw(hnp.arrays(np.float32, shapes)),
        "s": data.draw(st.lists(st.binary(max_size=5), min_size=rows, max_size=rows)),
    }
    lengths = data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows))
    offsets = np.cumsum([0, *lengths])
    columns["r"] = Ragged(np.arange(offsets[-1]), offsets)
    path = tmp_path / "x"
    with Writer(path, exists="replace") as w:
        w.write_examples(columns)
        assert w.records == rows
    wanted = [encode_example({name: column[row] for name, column in columns.items()}) for row in range(rows)]
    assert list(Reader(path)) == wanted


def test_strings_keep_their_nuls_and_text_is_utf8(tmp_path: Path) -> None:
    with Writer(tmp_path / "x") as w:
        w.write_examples({"s": [b"a\0", b""], "t": ["é", "x"]})
    first = encode_example({"s": b"a\0", "t": "é"})
    assert list(Reader(tmp_path / "x")) == [first, encode_example({"s": b"", "t": "x"})]


def test_columns_without_rows_write_nothing(tmp_path: Path) -> None:
    with Writer(tmp_path / "x") as w:
        w.write_examples({"i": np.zeros((0, 3), np.int64)})
    assert list(Reader(tmp_path / "x")) == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({}, "no columns"),
        ({"a": [1, 2], "b": [1]}, "column 'a' has 2 rows and column 'b' 1"),
        ({"a": np.int64(3)}, "no row axis"),
        ({"a": [[1], [1, 2]]}, "Ragged"),
        ({"a": [1j]}, "column 'a'"),
        ({"a": Ragged(np.arange(3), np.array([0, 2, 1]))}, "offsets"),
        ({3: [1]}, "name of a feature"),
        ({"a": [b"x", 3]}, "int among bytes"),
        ({"a": [3, b"x"]}, "column 'a'"),
    ],
)
def test_invalid_columns_write_nothing(columns: Any, said: str, tmp_path: Path) -> None:
    w = Writer(tmp_path / "x")
    with pytest.raises(SchemaError, match=said):
        w.write_examples(columns)
    assert w.records == 0
    w.close()
    with pytest.raises(PlanError, match="closed"):
        w.write_examples({"a": [1]})

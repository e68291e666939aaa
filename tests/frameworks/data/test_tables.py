"""Tables of pyarrow in Polars and pandas, and their tables as Examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pl = pytest.importorskip("polars")
pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

import shardkeep as sk  # noqa: E402
from shardkeep.tfrecord import Reader, Writer, decode_example, read_arrow, read_columns, to_arrow  # noqa: E402

FEATURES = {
    "x": sk.FixedLen(),
    "name": sk.FixedLen((), "bytes"),
    "m": sk.FixedLen((2, 3), "float32"),
    "v": sk.VarLen("int64"),
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    with Writer(tmp_path / "a.tfrecord") as writer:
        for x in range(4):
            example = {"x": x, "name": f"ü{x}", "m": np.arange(6.0) * x, "v": np.arange(x)}
            writer.write_example(example)
    return writer.path


def test_polars_has_text_and_shapes(path: str) -> None:
    frame = pl.from_arrow(read_arrow(path, FEATURES, text=["name"], nested=True))
    assert frame.schema == {
        "x": pl.Int64,
        "name": pl.String,
        "m": pl.Array(pl.Array(pl.Float32, 3), 2),
        "v": pl.List(pl.Int64),
    }
    assert frame["name"].to_list() == ["ü0", "ü1", "ü2", "ü3"]
    assert frame["m"].to_list()[2] == [[0, 2, 4], [6, 8, 10]]


def test_pandas_has_text_and_nested_arrays(path: str) -> None:
    frame = read_arrow(path, FEATURES, text=["name"], nested=True).to_pandas()
    assert frame["name"].tolist() == ["ü0", "ü1", "ü2", "ü3"]
    restored = np.array([[list(row) for row in matrix] for matrix in frame["m"]], np.float32)
    np.testing.assert_array_equal(restored, read_columns(path, FEATURES)["m"])


def test_a_batch_becomes_a_frame(path: str) -> None:
    batch = next(iter(sk.Loader(path, FEATURES, 3, sk.World(0, 1))))
    assert pl.from_arrow(to_arrow(batch, nested=True)).shape == (3, 4)


@pytest.mark.parametrize("kind", ["polars", "pyarrow", "pandas"])
def test_a_frame_becomes_examples(tmp_path: Path, kind: str) -> None:
    columns = {"x": [1, 2], "name": ["a", "ü"], "v": [[1.5], []]}
    table = {
        "polars": lambda: pl.DataFrame(columns),
        "pyarrow": lambda: pa.table(columns),
        "pandas": lambda: pa.Table.from_pandas(pd.DataFrame(columns)),
    }[kind]()
    with Writer(tmp_path / "a") as writer:
        writer.write_examples(table)
    rows = [
        {name: list(values) for name, values in decode_example(one).items()} for one in Reader(writer.path)
    ]
    assert rows == [
        {"x": [1], "name": [b"a"], "v": [1.5]},
        {"x": [2], "name": ["ü".encode()], "v": []},
    ]


def test_nulls_and_categories_of_polars_become_examples(tmp_path: Path) -> None:
    frame = pl.DataFrame(
        {
            "x": [1, None],
            "name": ["a", None],
            "kind": pl.Series(["u", "v"], dtype=pl.Categorical),
            "pair": pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int64, 2)),
        }
    )
    with Writer(tmp_path / "a") as writer:
        writer.write_examples(frame)
    rows = [
        {name: list(values) for name, values in decode_example(one).items()} for one in Reader(writer.path)
    ]
    assert rows == [
        {"x": [1], "name": [b"a"], "kind": [b"u"], "pair": [1, 2]},
        {"x": [], "name": [], "kind": [b"v"], "pair": [3, 4]},
    ]

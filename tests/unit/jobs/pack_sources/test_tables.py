from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shardkeep.errors import (
    FormatError,
    MissingExtraError,
    NotFoundError,
    SchemaError,
    ShardkeepError,
)
from shardkeep.jobs import pack
from tests.unit.jobs.packing import PATTERN, csv_file, examples, left


def test_types_of_a_csv_file(tmp_path: Path) -> None:
    path = csv_file(
        tmp_path / "t.csv",
        "\ufeffint,neg,float,zip,big,mixed,text,gap,none\r\n"
        '1,-5,1.5,01234,18446744073709551616,1,"a, ""b""\nc",7,\r\n'
        "2,0,-2e3,98765,1,x,é,,\r\n",
    )
    report = pack(path, tmp_path / PATTERN)
    assert report.features == {
        "int": "int64",
        "neg": "int64",
        "float": "float32",
        "zip": "bytes",
        "big": "bytes",
        "mixed": "bytes",
        "text": "bytes",
        "gap": "int64",
        "none": "bytes",
    }
    first, second = examples(report)
    assert first["text"] == [b'a, "b"\nc']
    assert (first["gap"], first["neg"], first["float"]) == ([7], [-5], [1.5])
    assert "gap" not in second
    assert (second["text"], second["zip"], second["none"]) == (["é".encode()], [b"98765"], [b""])


def test_types_may_be_passed(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "t.csv", "a,b\n1,2\n")
    report = pack(path, tmp_path / PATTERN, dtypes={"a": "float32", "b": "bytes"})
    assert examples(report) == [{"a": [1.0], "b": [b"2"]}]
    with pytest.raises(SchemaError, match="no column 'c'; it has a, b"):
        pack(path, tmp_path / "x{shard}", dtypes={"c": "bytes"})
    with pytest.raises(SchemaError, match=r"line 2: .*x"):
        pack(csv_file(tmp_path / "u.csv", "a\nx\n"), tmp_path / "x{shard}", dtypes={"a": "int64"})


def test_several_csv_files_and_tabs(tmp_path: Path) -> None:
    a, b = csv_file(tmp_path / "a.tsv", "x\ty\n1\t2\n"), csv_file(tmp_path / "b.tsv", "x\ty\n3\t4.5\n")
    report = pack(tmp_path / "*.tsv", tmp_path / PATTERN)
    assert report.sources == (str(a), str(b))
    assert examples(report) == [{"x": [1], "y": [2.0]}, {"x": [3], "y": [4.5]}]
    csv_file(b, "x\tz\n3\t4.5\n")
    with pytest.raises(SchemaError, match=r"its columns are x, z; those of .* are x, y"):
        pack([a, b], tmp_path / "x{shard}")


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("a,b\n1,2\n3\n", SchemaError, "line 3 has 1 cells, the header 2"),
        (b"a,b\n1,\xff\n", FormatError, "line 2: not UTF-8"),
        ('a,b\n1,"2\n', FormatError, "line 2: not CSV"),
        ("a,a\n1,2\n", SchemaError, "'a' twice"),
        ("a,\n1,2\n", SchemaError, "without a name"),
        ("a,b\n", NotFoundError, "has no record"),
        ("\n", FormatError, "begins with a header"),
        ("", FormatError, "an empty file"),
    ],
)
def test_bad_csv(text: str, kind: type[ShardkeepError], message: str, tmp_path: Path) -> None:
    path = csv_file(tmp_path / "t.csv", text)
    with pytest.raises(kind, match=message):
        pack(path, tmp_path / PATTERN)
    assert left(tmp_path) == []


def test_uneven_rows_may_be_skipped(tmp_path: Path) -> None:
    path = csv_file(tmp_path / "t.csv", "a,b\n1,2\n3\n4,5,6\n7,8\n")
    report = pack(path, tmp_path / PATTERN, on_bad="skip")
    assert (report.skipped, report.features) == (2, {"a": "int64", "b": "int64"})
    assert examples(report) == [{"a": [1], "b": [2]}, {"a": [7], "b": [8]}]


def test_without_pyarrow_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtraError, match=r"pip install 'shardkeep\[arrow\]'"):
        pack(tmp_path / "x.parquet", tmp_path / PATTERN)


@pytest.fixture
def arrow() -> Iterator[Any]:
    yield pytest.importorskip("pyarrow")


def table(arrow: Any) -> Any:
    return arrow.table(
        {
            "i": arrow.array([1, None, 3], arrow.int32()),
            "f": arrow.array([0.5, 1.5, 2.5], arrow.float64()),
            "b": [True, False, True],
            "s": ["a", "é", None],
            "raw": [b"\0", b"", b"x"],
            "many": arrow.array([[1, 2], [], None], arrow.list_(arrow.int64())),
            "words": arrow.array([["x"], ["y", "z"], []], arrow.list_(arrow.string())),
            "cat": arrow.array(["p", "q", "p"]).dictionary_encode(),
            "vec": arrow.array([[1, 2], [3, 4], [5, 6]], arrow.list_(arrow.float32(), 2)),
        }
    )


def write_table(arrow: Any, given: Any, path: Path) -> Path:
    if path.suffix == ".parquet":
        import pyarrow.parquet

        pyarrow.parquet.write_table(given, path, row_group_size=2)
    else:
        new = arrow.ipc.new_stream if "stream" in path.name else arrow.ipc.new_file
        with arrow.OSFile(str(path), "wb") as sink, new(sink, given.schema) as writer:
            writer.write_table(given)
    return path


@pytest.mark.parametrize("name", ["t.parquet", "t.arrow", "stream.arrow"])
def test_tables(arrow: Any, name: str, tmp_path: Path) -> None:
    path = write_table(arrow, table(arrow), tmp_path / name)
    report = pack([path], tmp_path / PATTERN)
    first, second, third = examples(report)
    assert first == {
        "i": [1],
        "f": [0.5],
        "b": [1],
        "s": [b"a"],
        "raw": [b"\0"],
        "many": [1, 2],
        "words": [b"x"],
        "cat": [b"p"],
        "vec": [1.0, 2.0],
    }
    assert "i" not in second
    assert (second["many"], second["words"], second["s"]) == ([], [b"y", b"z"], ["é".encode()])
    assert ("s" in third, "many" in third, third["words"]) == (False, False, [])
    assert report.features["many"] == "int64"
    assert "float64" in report.notes[0]


def test_tables_that_do_not_fit(arrow: Any, tmp_path: Path) -> None:
    for name, values, message in (
        ("when", arrow.array([0], arrow.timestamp("s")), "'when' is timestamp"),
        ("deep", arrow.array([[[1]]]), "'deep' is list"),
        ("holes", arrow.array([[1, None]]), "row 0: column 'holes' has a null"),
    ):
        path = write_table(arrow, arrow.table({name: values}), tmp_path / f"{name}.parquet")
        with pytest.raises(SchemaError, match=message):
            pack(path, tmp_path / PATTERN)
    other = write_table(arrow, table(arrow), tmp_path / "t.parquet")
    with pytest.raises(SchemaError, match="its columns differ from those of"):
        pack([other, tmp_path / "when.parquet"], tmp_path / PATTERN)
    assert left(tmp_path) == []


def test_damaged_tables(arrow: Any, tmp_path: Path) -> None:
    for name in ("t.parquet", "t.arrow", "stream.arrow"):
        path = write_table(arrow, table(arrow), tmp_path / name)
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(FormatError, match="pyarrow cannot read it"):
            pack(path, tmp_path / PATTERN)
    assert left(tmp_path) == []

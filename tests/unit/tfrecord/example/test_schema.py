from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from shardkeep.errors import FormatError, NotFoundError, PlanError, SchemaError
from shardkeep.tfrecord import (
    FixedLen,
    Image,
    Reader,
    VarLen,
    Writer,
    decode_example,
    infer_schema,
    read_columns,
)
from tests.messages import OTHER_MESSAGES


def write(path: Path, examples: list[Any], compression: str | None = None) -> Path:
    with Writer(path, compression=compression) as writer:
        for one in examples:
            writer.write(one) if isinstance(one, bytes) else writer.write_example(one)
    return path


def picture(height: int, width: int, mode: str = "RGB", kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    PillowImage.new(mode, (width, height)).save(out, kind)
    return out.getvalue()


def test_kinds_and_lengths_are_inferred(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a",
        [
            {"one": i, "three": [0.5, 1, 2], "name": b"x", "two": [b"a", b"b"], "any": np.arange(i)}
            for i in range(5)
        ],
    )
    schema = infer_schema(path)
    assert schema == {
        "any": VarLen("int64"),
        "name": FixedLen((), "bytes"),
        "one": FixedLen((), "int64"),
        "three": FixedLen((3,), "float32"),
        "two": FixedLen((2,), "bytes"),
    }
    assert list(schema) == sorted(schema)
    assert (schema.records, schema.files) == (5, 1)
    assert schema.facts["any"].lengths == (0, 4)


def test_feature_missing_in_some_records_is_ragged_without_default(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [{"x": 1, "y": 2.5}, {"x": 1}, {"x": 1, "y": 2.5}])
    schema = infer_schema(path)
    assert schema == {"x": FixedLen(), "y": VarLen("float32")}
    assert '"y": VarLen("float32"),  # missing in 1 of 3, else 1 value\n' in schema.source()
    assert [row.tolist() for row in read_columns(path, schema)["y"]] == [[2.5], [], [2.5]]


def test_feature_without_any_value_is_var_len_bytes(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [{"x": np.array([], "S")}, {"x": np.array([], "S")}])
    assert infer_schema(path) == {"x": VarLen("bytes")}
    assert "# never has a value" in infer_schema(path).source()
    # A feature without a kind fits every other one; an empty list has a kind.
    write(tmp_path / "b", [{"x": None}, {"x": [1, 2]}])
    assert infer_schema(tmp_path / "b") == {"x": VarLen("int64")}
    assert read_columns(tmp_path / "b", {"x": VarLen("int64")})["x"].values.tolist() == [1, 2]
    write(tmp_path / "c", [{"x": np.array([], "S")}, {"x": [1, 2]}])
    with pytest.raises(SchemaError, match=r"bytes in .*c record 0, but int64 in .*c record 1"):
        infer_schema(tmp_path / "c")


def test_images_are_inferred_with_channels_and_size(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a",
        [
            {
                "same": picture(4, 6),
                "grey": picture(4, 6, "L", "JPEG"),
                "alpha": picture(4, 6, "RGBA"),
                "grey_alpha": picture(4, 6, "LA"),
                "mixed": picture(4, 6, "L" if i else "RGB"),
                "sizes": picture(4 + 2 * (i == 0), 6),
                "not_all": picture(4, 6) if i else b"no image",
                "two": [picture(4, 6)] * 2,
                "webp": picture(4, 6, "RGB", "WEBP"),
            }
            for i in range(3)
        ],
    )
    schema = infer_schema(path)
    assert schema == {
        "alpha": Image(4, "uint8"),
        "grey": Image(1, "uint8"),
        "grey_alpha": Image(0, "uint8"),
        "mixed": Image(3, "uint8"),
        "not_all": FixedLen((), "bytes"),
        "same": Image(3, "uint8"),
        "sizes": Image(3, "uint8", size=(4, 6)),
        "two": FixedLen((2,), "bytes"),
        "webp": Image(3, "uint8"),
    }
    shapes = {name: column.shape for name, column in read_columns(path, schema).items()}  # type: ignore[union-attr]
    assert shapes["sizes"] == (3, 4, 6, 3)
    assert shapes["grey_alpha"] == (3, 4, 6, 2)
    assert '"sizes": Image(3, "uint8", size=(4, 6)),  # images of 4x6 to 6x6\n' in schema.source()


def test_two_kinds_name_both_records(tmp_path: Path) -> None:
    a = write(tmp_path / "a", [{"y": 1}, {"x": 1}])
    b = write(tmp_path / "b", [{"x": 2}, {"x": 0.5}])
    with pytest.raises(SchemaError) as caught:
        infer_schema([a, b])
    assert str(caught.value) == (
        f"feature 'x': int64 in {a} record 1, but float32 in {b} record 1: a feature has one kind"
    )


def test_the_sample_is_spread_over_files_and_through_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(4):
        write(tmp_path / f"{number}", [{"x": [0] * i} for i in range(1, 101)])
    seen: list[int] = []

    def spy(record: bytes) -> dict[str, Any]:
        seen.append(len(record))
        return decode_example(record)

    monkeypatch.setattr("shardkeep.tfrecord.example.schema.decode_example", spy)
    assert infer_schema(str(tmp_path / "?"), sample=40).records == 40
    records = [len(record) for record in Reader(tmp_path / "0")]
    assert seen[:10] == [records[i] for i in (0, 1, 2, 3, 4, 5, 28, 52, 75, 99)]
    assert seen == seen[:10] * 4


def test_unused_share_of_small_files_goes_to_the_others(tmp_path: Path) -> None:
    paths = [write(tmp_path / f"{n}", [{"x": 1}] * n) for n in (0, 1, 50)]
    schema = infer_schema(paths, sample=30)
    assert (schema.records, schema.files) == (30, 3)
    assert infer_schema(paths, sample=None).records == 51
    assert infer_schema(paths, sample=1000).records == 51


def test_more_files_than_sampled_records(tmp_path: Path) -> None:
    for number in range(12):
        write(tmp_path / f"{number:02}", [{"x": [0] * (number + 1)}] * 3)
    schema = infer_schema(str(tmp_path / "*"), sample=4)
    assert (schema.records, schema.files) == (4, 4)
    assert schema.facts["x"].lengths == (1, 12)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_files_are_sampled_from_the_start(tmp_path: Path, compression: str) -> None:
    path = write(tmp_path / "a", [{"x": i} for i in range(9)], compression)
    assert infer_schema(path, sample=4) == {"x": FixedLen()}
    assert infer_schema(path, sample=4).records == 4


def test_source_evaluates_to_the_same_schema(tmp_path: Path) -> None:
    names = ["plain", 'quo"te', "apos'trophe", "both'\"", "new\nline", "ünï", "\x1b[31m"]
    path = write(tmp_path / "a", [{name: [0.5, 1.0] for name in names}])
    schema = infer_schema(path)
    source = schema.source()
    assert source.isascii()
    assert "\x1b" not in source
    scope: dict[str, Any] = {"FixedLen": FixedLen, "VarLen": VarLen, "Image": Image}
    exec(source, scope)
    assert scope["features"] == schema == dict.fromkeys(names, FixedLen((2,), "float32"))


def test_schema_is_picklable(tmp_path: Path) -> None:
    schema = infer_schema(write(tmp_path / "a", [{"x": 1}]))
    again = pickle.loads(pickle.dumps(schema))
    assert (again, again.source()) == (schema, schema.source())


def test_files_without_records_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match="hold no record"):
        infer_schema(write(tmp_path / "a", []))


def test_records_that_are_not_examples_are_refused(tmp_path: Path) -> None:
    for name, record in OTHER_MESSAGES.items():
        path = write(tmp_path / name, [{"x": 1}, record])
        with pytest.raises(FormatError, match=rf"record 1: .*it is a {name}; ") as caught:
            infer_schema(path)
        assert (caught.value.path, caught.value.record) == (str(path), 1)
    with pytest.raises(SchemaError, match=r"record 0: not a tf\.train\.Example"):
        infer_schema(write(tmp_path / "b", [b"\xff\xff"]))


def test_reading_errors_are_raised(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        infer_schema(tmp_path / "none")
    (tmp_path / "t").write_text("<html>")
    with pytest.raises(FormatError, match="HTML"):
        infer_schema(tmp_path / "t")
    with pytest.raises(PlanError, match="sample must be at least 1, not 0"):
        infer_schema(tmp_path / "t", sample=0)


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("sample", [None, 10])
def test_the_progress_is_in_bytes_of_the_files(tmp_path, compression, sample):
    paths = [tmp_path / f"{i}" for i in range(3)]
    for path in paths:
        with Writer(path, compression=compression) as writer:
            for i in range(6):
                writer.write_example({"x": np.random.default_rng(i).bytes(1 << 20)})
    moves = []
    infer_schema(paths, sample, progress=lambda done, total: moves.append((done, total)))
    size_bytes = sum(path.stat().st_size for path in paths)
    assert {total for _, total in moves} == {size_bytes}
    assert moves == sorted(moves)
    assert moves[-1][0] == size_bytes
    assert len(moves) > (2 if sample else 5)
    with pytest.raises(NotFoundError):
        infer_schema([*paths, tmp_path / "missing"], None, progress=lambda *_: None)

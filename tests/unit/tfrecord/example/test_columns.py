"""Columns of whole files.

Covers `shardkeep.tfrecord.example.batches`.
"""

from __future__ import annotations

import gzip
import io
import subprocess
import sys
import zlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from shardkeep import _core
from shardkeep.errors import (
    CorruptRecordError,
    FormatError,
    NotFoundError,
    PlanError,
    SchemaError,
    TruncatedFileError,
)
from shardkeep.tfrecord import (
    FixedLen,
    Image,
    Ragged,
    VarLen,
    Writer,
    encode_example,
    read_columns,
)
from shardkeep.tfrecord.example import columns
from shardkeep.tfrecord.example.features import Feature, describe
from tests.waiting import PATIENCE_S


def write(path: Path, examples: list[Any], compression: str | None = None) -> Path:
    with Writer(path, compression=compression, exists="replace") as writer:
        for one in examples:
            writer.write(one) if isinstance(one, bytes) else writer.write_example(one)
    return path


def png(height: int, width: int, value: int = 0) -> bytes:
    out = io.BytesIO()
    PillowImage.fromarray(np.full((height, width, 3), value, np.uint8)).save(out, "PNG")
    return out.getvalue()


def read(paths: Any, features: Mapping[str, Feature], **options: Any) -> dict[str, Any]:
    return read_columns(paths, features, **options)


# -- round trips -------------------------------------------------------------------------------------

ELEMENTS: dict[str, st.SearchStrategy[Any]] = {
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float32": st.floats(width=32, allow_nan=False),
    "bytes": st.binary(max_size=4),
}


def as_stored(values: list[Any], dtype: str) -> Any:
    return values if values and dtype == "bytes" else np.array(values, "S" if dtype == "bytes" else dtype)


def frame(record: bytes) -> bytes:
    length = len(record).to_bytes(8, "little")
    checksums = [_core.masked_crc32c(part).to_bytes(4, "little") for part in (length, record)]
    return length + checksums[0] + record + checksums[1]


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Feature], list[dict[str, Any]]]:
    """Features and the rows of several records, each a list of values by name."""
    names = draw(st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=4, unique=True))
    dtypes = st.sampled_from(list(ELEMENTS))
    shapes = st.lists(st.integers(0, 3), max_size=2).map(tuple)
    kinds = st.builds(VarLen, dtypes) | st.builds(FixedLen, shapes, dtypes)
    features: dict[str, Feature] = {name: draw(kinds) for name in names}
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        row = {}
        for name, feature in features.items():
            size = int(np.prod(feature.shape)) if isinstance(feature, FixedLen) else None
            values = st.lists(
                ELEMENTS[feature.dtype], min_size=size or 0, max_size=3 if size is None else size
            )
            row[name] = draw(values)
        rows.append(row)
    return features, rows


@settings(max_examples=100)
@given(
    tables(), st.lists(st.integers(0, 4), max_size=4), st.sampled_from([bytes, gzip.compress, zlib.compress])
)
def test_written_data_is_read_back(
    tmp_path_factory: pytest.TempPathFactory,
    table: tuple[dict[str, Feature], list[dict[str, Any]]],
    cuts: list[int],
    compress: Callable[[bytes], bytes],
) -> None:
    features, rows = table
    folder = tmp_path_factory.getbasetemp()
    bounds = [0, *np.minimum(np.cumsum(cuts), len(rows)).tolist(), len(rows)]
    paths = []
    for number, (start, stop) in enumerate(pairwise(bounds)):
        content = b"".join(
            frame(encode_example({name: as_stored(row[name], features[name].dtype) for name in row}))
            for row in rows[start:stop]
        )
        # Every second file is compressed, so that the ways of reading take turns.
        paths.append(folder / f"{number}")
        paths[-1].write_bytes(compress(content) if number % 2 else content)
    found = read(paths, features)
    assert list(found) == list(features)
    for name, feature in features.items():
        wanted = [row[name] for row in rows]
        dtype = np.dtype(object if feature.dtype == "bytes" else feature.dtype)
        if isinstance(feature, VarLen):
            assert isinstance(found[name], Ragged)
            assert found[name].values.dtype == dtype
            assert [row.tolist() for row in found[name]] == wanted
        else:
            assert isinstance(feature, FixedLen)
            assert (found[name].dtype, found[name].shape) == (dtype, (len(rows), *feature.shape))
            width = int(np.prod(feature.shape))
            assert found[name].reshape(len(rows), width).tolist() == wanted


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize(("rows", "size"), [(1, 1 << 30), (3, 1 << 30), (8192, 1), (8192, 200), (5, 300)])
def test_the_size_of_batches_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, size: int, compression: str | None
) -> None:
    counts = [7, 0, 1, 0, 0, 20, 2]
    start = 0
    for number, count in enumerate(counts):
        records = range(start, start + count)
        examples = [{"x": i, "v": as_stored([b"v%d" % i] * (i % 4), "bytes"), "s": b"s" * i} for i in records]
        write(tmp_path / f"{number}", examples, compression)
        start += count
    monkeypatch.setattr(columns, "_BATCH_ROWS", rows)
    monkeypatch.setattr(columns, "_BATCH_BYTES", size)
    features = {"v": VarLen("bytes"), "x": FixedLen(), "s": FixedLen((), "bytes")}
    found = read(str(tmp_path / "?"), features, threads=3)
    assert found["x"].tolist() == list(range(30))
    assert [row.tolist() for row in found["v"]] == [[b"v%d" % i] * (i % 4) for i in range(30)]
    assert found["s"].tolist() == [b"s" * i for i in range(30)]


def test_defaults_fill_missing_features(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [{"x": 1}, {}, {"x": 3, "s": b"s", "v": [1.5]}])
    features = {
        "x": FixedLen((), "int64", -1),
        "s": FixedLen((2,), "bytes", b"none"),
        "v": VarLen("float32"),
    }
    with pytest.raises(SchemaError, match=r'record 2 .*feature "s": expected bytes of shape \(2,\)'):
        read(path, features)
    found = read(path, {**features, "s": FixedLen((1,), "bytes", b"none")})
    assert found["x"].tolist() == [1, -1, 3]
    assert found["s"].tolist() == [[b"none"], [b"none"], [b"s"]]
    assert [row.tolist() for row in found["v"]] == [[], [], [1.5]]


# -- images --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zlib"])
def test_images_are_decoded(tmp_path: Path, compression: str | None) -> None:
    path = write(tmp_path / "a", [{"x": png(2, 3, i)} for i in range(100)], compression)
    found = read(path, {"x": Image(3, "uint8")})["x"]
    assert found.shape == (100, 2, 3, 3)
    assert found[:, 1, 2, 0].tolist() == list(range(100))
    assert read(path, {"x": Image(1, "float32", size=(5, 5))})["x"].shape == (100, 5, 5, 1)
    # The size is given and the channels are not: the first image has them.
    assert read(path, {"x": Image(0, "float32", size=(5, 5))})["x"].shape == (100, 5, 5, 3)


@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("other", [5, 16, 90])
def test_image_of_another_size_is_an_error(tmp_path: Path, other: int, compression: str | None) -> None:
    examples = [{"x": png(2 if i < other else 4, 3)} for i in range(100)]
    path = write(tmp_path / "a", examples, compression)
    message = rf'record {other}\b.*feature ."?x"?.*expected 2x3x3 .*found 4x3x3; pass size= and channels='
    with pytest.raises(SchemaError, match=message) as caught:
        read(path, {"x": Image(3, "uint8")})
    assert (caught.value.path, caught.value.record) == (str(path), other)
    assert read(path, {"x": Image(3, "uint8", size=(2, 3))})["x"].shape == (100, 2, 3, 3)


# -- no records ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_file_without_records_has_empty_columns(tmp_path: Path, compression: str | None) -> None:
    features = {
        "i": FixedLen((2, 3)),
        "f": FixedLen((), "float32"),
        "b": FixedLen((4,), "bytes"),
        "v": VarLen("int64"),
        "w": VarLen("bytes"),
        "p": Image(1, "uint8"),
        "q": Image(3, size=(4, 5)),
    }
    found = read([write(tmp_path / name, [], compression) for name in "ab"], features)
    shapes = {
        name: (len(column), len(column.values)) if isinstance(column, Ragged) else column.shape
        for name, column in found.items()
    }
    assert shapes == {
        "i": (0, 2, 3),
        "f": (0,),
        "b": (0, 4),
        "v": (0, 0),
        "w": (0, 0),
        "p": (0, 0, 0, 1),
        "q": (0, 4, 5, 3),
    }
    assert [found[name].dtype for name in "ifbpq"] == ["int64", "float32", "object", "uint8", "float32"]
    assert (found["v"].values.dtype, found["w"].values.dtype) == ("int64", "object")


# -- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize(
    ("example", "feature", "message"),
    [
        ({"x": 0.5}, FixedLen(), "expected int64 of shape (), found float32 (1 value)"),
        ({"x": [1, 2]}, FixedLen(), "expected int64 of shape () (1 value), found 2"),
        ({"x": [b"a"] * 3}, FixedLen((2, 2), "bytes"), "expected bytes of shape (2, 2) (4 values), found 3"),
        ({"y": 1}, FixedLen((), "float32"), 'expected float32 of shape (), but the record has only "y"'),
        ({"x": b"a"}, VarLen("int64"), "expected any number of int64, found bytes (1 value)"),
        ({"x": 5}, Image(), "expected one image as bytes, found int64 (1 value)"),
    ],
)
def test_record_with_another_shape_is_an_error(
    tmp_path: Path, compression: str | None, example: Any, feature: Any, message: str
) -> None:
    good: dict[str, Any] = {"x": 1}
    if isinstance(feature, Image):
        good = {"x": png(2, 2)}
    elif feature.dtype != "int64":
        size = int(np.prod(feature.shape)) if isinstance(feature, FixedLen) else 1
        good = {"x": [b"a"] * size if feature.dtype == "bytes" else [0.5] * size}
    path = write(tmp_path / "a", [good] * 20 + [example] + [good] * 3, compression)
    with pytest.raises(SchemaError) as caught:
        read(path, {"x": feature})
    error = caught.value
    assert str(error).startswith(f"{path}: record 20")
    assert str(error).endswith(f': feature "x": {message}')
    assert (error.path, error.record) == (str(path), 20)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_record_that_is_not_an_example_is_refused(tmp_path: Path, compression: str | None) -> None:
    path = write(tmp_path / "a", [{"x": 1}, b"\xff\xff"], compression)
    with pytest.raises(CorruptRecordError, match=r"record 1.*not a tf.train.Example"):
        read(path, {"x": FixedLen()})


def test_damage_names_file_record_and_offset(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [{"x": i} for i in range(10)])
    content = bytearray(path.read_bytes())
    content[-5] ^= 1  # the last byte of the last record is its value
    path.write_bytes(content)
    with pytest.raises(CorruptRecordError, match="record 9"):
        read(path, {"x": FixedLen()})
    assert read(path, {"x": FixedLen()}, verify=False)["x"].tolist() == [*range(9), 8]
    path.write_bytes(content[:-1])
    with pytest.raises(TruncatedFileError):
        read(path, {"x": FixedLen()})


def test_invalid_arguments_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a", [{"x": 1}])
    for features, message in (
        ({}, "pass at least one"),
        (None, "features must be a dict of names to FixedLen, VarLen or Image, not None"),
        (["x"], r"not \['x'\]"),
    ):
        with pytest.raises(SchemaError, match=message):
            read(path, features)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="expected FixedLen, VarLen or Image"):
        read(path, {"x": "int64"})  # type: ignore[dict-item]
    with pytest.raises(PlanError, match="threads must be from 1"):
        read(path, {"x": FixedLen()}, threads=0)
    with pytest.raises(NotFoundError):
        read(tmp_path / "none", {"x": FixedLen()})
    (tmp_path / "t").write_text("<html>" + " " * 50)
    with pytest.raises(FormatError, match="HTML"):
        read(tmp_path / "t", {"x": FixedLen()})


# -- progress and memory -------------------------------------------------------------------------------------


def test_progress_reaches_all_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "_BATCH_ROWS", 10)
    paths = [
        write(tmp_path / "a", [{"x": i} for i in range(25)]),
        write(tmp_path / "b", [{"x": i} for i in range(25)], "gzip"),
        write(tmp_path / "c", [{"x": i} for i in range(5)]),
    ]
    told: list[tuple[int, int]] = []
    read(paths, {"x": FixedLen()}, progress=lambda done, total: told.append((done, total)))
    sizes = [path.stat().st_size for path in paths]
    assert {total for _, total in told} == {sum(sizes)}
    done = [one for one, _ in told]
    assert done == sorted(done)
    assert len(done) == 3 + 1 + 1
    assert done[2:] == [sizes[0], sum(sizes[:2]), sum(sizes)]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read(paths, {"x": FixedLen()}, progress=stop)


MEMORY = """
import sys
from shardkeep.tfrecord import FixedLen, VarLen, read_columns

def peak_bytes():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024

wide, ragged = {"f": FixedLen((4096,), "float32")}, {"v": VarLen("float32")}
read_columns(sys.argv[1], {**wide, **ragged})
before = peak_bytes()
if sys.argv[3] == "wide":
    size = read_columns(sys.argv[2], wide)["f"].nbytes
else:
    size = read_columns(sys.argv[2], ragged)["v"].values.nbytes
print(size, peak_bytes() - before)
"""


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("kind", ["wide", "ragged"])
def test_memory_is_that_of_the_result(tmp_path: Path, kind: str, compression: str | None) -> None:
    example = dict.fromkeys("fv", np.zeros(4096, np.float32))
    small = write(tmp_path / "small", [example], compression)
    record = encode_example(example)
    with Writer(tmp_path / "large", compression=compression) as writer:
        for _ in range(5_000):
            writer.write(record)
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(small), str(tmp_path / "large"), kind],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    result, needed = map(int, done.stdout.split())
    assert result > 70 << 20
    assert needed < result * 1.15 + (40 << 20)


# -- the binding ---------------------------------------------------------------------------------------------


def test_the_builder_is_finished_once() -> None:
    builder = _core.ColumnBuilder(describe({"x": FixedLen((), "int64", 7)}), 3)
    builder.fill([b"", b""])
    assert builder.finish()["x"].tolist() == [7, 7, 0]
    for call in (builder.finish, lambda: builder.fill([])):
        with pytest.raises(ValueError, match="are finished"):
            call()
    with pytest.raises(ValueError, match="bytes_as"):
        _core.ColumnBuilder([], 0, bytes_as="strings")  # type: ignore[arg-type]

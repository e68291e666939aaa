from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import (
    CorruptDataError,
    ExistsError,
    FormatError,
    MissingExtraError,
    NotFoundError,
    PlanError,
    SchemaError,
    ShardkeepError,
    TruncatedFileError,
)
from shardkeep.jobs import PackReport, pack
from shardkeep.jobs.pack_sources.images import image_facts
from shardkeep.tfrecord import Reader, decode_example

Pillow = pytest.importorskip("PIL.Image")

PATTERN = "out-{shard}-of-{shards}"


def image(kind: str = "PNG", mode: str = "RGB", size: tuple[int, int] = (5, 3), seed: int = 0) -> bytes:
    depth = len(Pillow.new(mode, (1, 1)).getbands())
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], depth), np.uint8)
    made = Pillow.fromarray(pixels[:, :, 0] if depth == 1 else pixels, mode if depth > 1 else "L").convert(
        mode
    )
    buffer = io.BytesIO()
    made.save(buffer, kind)
    return buffer.getvalue()


def examples(report: PackReport) -> list[dict[str, Any]]:
    """Return all records, in the order of the shards, with arrays as lists."""
    found = []
    for output in report.outputs:
        records = list(Reader(output.path))
        assert (len(records), os.path.getsize(output.path)) == (output.records, output.bytes)
        for record in records:
            features = decode_example(record)
            found.append({name: list(values) for name, values in features.items()})
    assert len(found) == report.records
    return found


def left(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.startswith((".", "out"))]


# -- images --------------------------------------------------------------------------------------------


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    folder = tmp_path / "pets"
    for name, count in (("dog", 3), ("Cat", 2), ("eel", 0)):
        (folder / name / "deep").mkdir(parents=True)
        for i in range(count):
            kind = "JPEG" if i % 2 else "PNG"
            (folder / name / ("deep" if i else "") / f"{i}.x").write_bytes(image(kind, seed=i))
    (folder / ".DS_Store").write_bytes(b"?")
    return folder


def test_a_folder_of_images(pets: Path, tmp_path: Path) -> None:
    report = pack(pets, tmp_path / PATTERN, labels_path=tmp_path / "labels.json")
    found = examples(report)
    assert report.kind == "images"
    assert report.labels == {"Cat": 0, "dog": 1, "eel": 2}
    assert json.loads((tmp_path / "labels.json").read_text()) == report.labels
    names = [b"Cat/deep/1.x", b"Cat/0.x", b"dog/deep/1.x", b"dog/deep/2.x", b"dog/0.x"]
    assert sorted(one["filename"][0] for one in found) == sorted(names)
    for one in found:
        path = pets / os.fsdecode(one["filename"][0])
        assert one["image_raw"] == [path.read_bytes()]
        assert one["label"] == [{"Cat": 0, "dog": 1}[path.relative_to(pets).parts[0]]]
        assert (one["height"], one["width"], one["depth"]) == ([3], [5], [3])
    assert set(report.features) == set(found[0])
    assert [one["label"][0] for one in found] == [0, 0, 1, 1, 1]
    assert [Path(one.path).name for one in report.outputs] == ["out-0-of-1"]


def test_labels_of_an_earlier_set(pets: Path, tmp_path: Path) -> None:
    given = {"eel": 0, "dog": 5, "Cat": 9}
    (tmp_path / "labels.json").write_text(json.dumps(given))
    for labels in (given, tmp_path / "labels.json"):
        report = pack(pets, tmp_path / "out", labels=labels, shards=1, exists="replace")
        assert [one["label"][0] for one in examples(report)] == [9, 9, 5, 5, 5]
    with pytest.raises(SchemaError, match="'dog' is none of the 1 labels"):
        pack(pets, tmp_path / PATTERN, labels={"Cat": 0})
    (tmp_path / "labels.json").write_text("[1]")
    with pytest.raises(FormatError, match="map of labels"):
        pack(pets, tmp_path / PATTERN, labels=tmp_path / "labels.json")
    with pytest.raises(NotFoundError):
        pack(pets, tmp_path / PATTERN, labels=tmp_path / "gone.json")


def test_a_folder_without_labels(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(70):  # more than one group of files
        (tmp_path / "in" / f"{i:02}.png").write_bytes(image(seed=i))
    report = pack(tmp_path / "in", tmp_path / PATTERN, shard_records=30)
    found = examples(report)
    assert [one["filename"] for one in found] == [[b"%02d.png" % i] for i in range(70)]
    assert [one.records for one in report.outputs] == [30, 30, 10]
    assert report.labels is None
    assert "label" not in found[0]
    with pytest.raises(PlanError, match="labels_path"):
        pack(tmp_path / "in", tmp_path / "x{shard}", labels_path=tmp_path / "labels.json")


def broken(kind: str) -> dict[str, bytes]:
    whole = image(kind)
    middle = len(whole) // 2
    return {
        "cut": whole[:middle],
        "without its end": whole[:-2],
        "only begun": whole[:6] if kind == "JPEG" else whole[:10],
        "empty": b"",
        "text": b"hello",
        "gif": image("GIF", "L"),
    }


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
@pytest.mark.parametrize("how", list(broken("PNG")))
def test_a_bad_image_is_named_or_skipped(kind: str, how: str, pets: Path, tmp_path: Path) -> None:
    (pets / "dog/bad.png").write_bytes(broken(kind)[how])
    with pytest.raises(ShardkeepError, match=r"dog/bad\.png") as caught:
        pack(pets, tmp_path / PATTERN, labels_path=tmp_path / "out.json")
    assert isinstance(caught.value, (FormatError, CorruptDataError))
    assert caught.value.path == str(pets / "dog/bad.png")
    assert left(tmp_path) == []
    report = pack(pets, tmp_path / PATTERN, on_bad="skip")
    assert (report.records, report.skipped) == (5, 1)
    assert "dog/bad.png" in report.bad[0]
    assert len(examples(report)) == 5


@pytest.mark.parametrize(
    ("kind", "mode", "depth"),
    [
        ("PNG", "L", 1),
        ("PNG", "LA", 2),
        ("PNG", "RGB", 3),
        ("PNG", "RGBA", 4),
        ("PNG", "P", 3),
        ("PNG", "1", 1),
        ("JPEG", "L", 1),
        ("JPEG", "RGB", 3),
        ("JPEG", "CMYK", 4),
        ("WEBP", "RGB", 3),
        ("WEBP", "RGBA", 4),
    ],
)
def test_image_kinds_are_recognised(kind: str, mode: str, depth: int) -> None:
    base = image("PNG", "RGB", (70, 40))
    buffer = io.BytesIO()
    options = {"progressive": True} if kind == "JPEG" else {}
    converted = Pillow.open(io.BytesIO(base)).convert(mode)
    if mode == "RGBA":  # WebP has no alpha where all is opaque
        converted.putpixel((0, 0), (1, 2, 3, 4))
    converted.save(buffer, kind, **options)
    assert image_facts(buffer.getvalue()) == (kind.lower(), 40, 70, depth)


@settings(max_examples=150)
@given(at=st.integers(0, 10_000), flip=st.integers(1, 255), kind=st.sampled_from(["PNG", "JPEG", "WEBP"]))
def test_hostile_images_are_errors_of_ours(at: int, flip: int, kind: str) -> None:
    data = bytearray(image(kind, size=(9, 9)))
    data[at % len(data)] ^= flip
    try:
        facts = image_facts(bytes(data))
    except (FormatError, CorruptDataError):
        return
    # The pixels of a JPEG or WebP file have no checksum; those of a PNG file have.
    assert kind != "PNG" or facts == ("png", 9, 9, 3)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
def test_every_cut_of_an_image_is_noticed(kind: str) -> None:
    data = image(kind, size=(9, 9))
    for length in range(len(data)):
        with pytest.raises((FormatError, CorruptDataError)):
            image_facts(data[:length])


def test_animated_webp_is_refused() -> None:
    frames = [Pillow.new("RGB", (9, 9), color) for color in ("red", "blue")]
    buffer = io.BytesIO()
    frames[0].save(buffer, "WEBP", save_all=True, append_images=frames[1:])
    with pytest.raises(FormatError, match="a WebP image that is an animation"):
        image_facts(buffer.getvalue())


def test_folders_that_make_no_sense(tmp_path: Path, pets: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(NotFoundError, match="no file in it"):
        pack(tmp_path / "none", tmp_path / PATTERN)
    (pets / "loose.png").write_bytes(image())
    with pytest.raises(SchemaError, match=r"loose\.png beside Cat/"):
        pack(pets, tmp_path / PATTERN)
    (pets / "loose.png").unlink()
    (pets / "dog/deep/loop").symlink_to(pets / "dog")
    with pytest.raises(SchemaError, match="link to a folder"):
        pack(pets, tmp_path / PATTERN)
    assert left(tmp_path) == []


def test_all_bad_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/readme.txt").write_text("hello")
    with pytest.raises(NotFoundError, match=r"no record in it; .*readme\.txt"):
        pack(tmp_path / "in", tmp_path / PATTERN, on_bad="skip")
    assert left(tmp_path) == []


# -- order, shards, and all or nothing -----------------------------------------------------------------


def numbers(report: PackReport) -> list[int]:
    return [one["data"][0] for one in examples(report)]


def test_shuffled_is_a_permutation_by_seed(tmp_path: Path) -> None:
    data = np.arange(1000)
    plain = pack(data, tmp_path / "p{shard}", shard_records=300)
    assert numbers(plain) == list(range(1000))
    orders = []
    for i, seed in enumerate((7, 7, 8)):
        report = pack(data, tmp_path / f"{i}-{{shard}}", shard_records=300, shuffle=seed)
        assert report.shuffle == seed
        orders.append(numbers(report))
        assert sorted(orders[-1]) == list(range(1000))
        # Every shard has something of every part.
        assert max(np.abs(np.array(orders[-1][:300]).mean() - 499.5), 0) < 60
    assert orders[0] == orders[1] != orders[2]
    assert left(tmp_path) == []


def test_dealt_out_and_compressed(tmp_path: Path) -> None:
    report = pack(np.arange(10), tmp_path / PATTERN, shards=3, compression="gzip")
    assert [one.records for one in report.outputs] == [4, 3, 3]
    assert numbers(report) == [0, 3, 6, 9, 1, 4, 7, 2, 5, 8]
    assert Reader(report.outputs[0].path).compression == "gzip"


def test_same_source_produces_the_same_files(pets: Path, tmp_path: Path) -> None:
    for name in "ab":
        pack(pets, tmp_path / f"{name}-{{shard}}", shards=2, shuffle=1)
    for shard in "01":
        assert (tmp_path / f"a-{shard}").read_bytes() == (tmp_path / f"b-{shard}").read_bytes()


def test_progress_ends_at_the_end(pets: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    for shuffle in (None, 3):
        seen.clear()
        pack(
            pets, tmp_path / f"{shuffle}{{shard}}", shuffle=shuffle, progress=lambda *done: seen.append(done)
        )
        assert seen == sorted(seen)
        assert seen[-1][0] == seen[-1][1] > 0


def test_nothing_is_overwritten_unless_asked(pets: Path, tmp_path: Path) -> None:
    (tmp_path / "labels.json").write_text("mine")
    with pytest.raises(ExistsError, match=r"labels\.json"):
        pack(pets, tmp_path / PATTERN, labels_path=tmp_path / "labels.json")
    assert left(tmp_path) == []
    pack(pets, tmp_path / PATTERN, labels_path=tmp_path / "labels.json", exists="replace")
    assert "dog" in (tmp_path / "labels.json").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "zip"}, "zip"),
        ({"on_bad": "ignore"}, "on_bad"),
        ({"shards": 2, "shard_bytes": 5}, "one of"),
        ({"dtypes": {"a": "int64"}}, "CSV"),
        ({"shuffle": -1}, "seed"),
    ],
)
def test_contradictions(options: dict[str, Any], message: str, pets: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=message):
        pack(pets, tmp_path / PATTERN, **options)
    assert left(tmp_path) == []


def test_other_sources_are_named(tmp_path: Path, pets: Path) -> None:
    (tmp_path / "x.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    with pytest.raises(FormatError, match="an HDF5 file"):
        pack(tmp_path / "x.h5", tmp_path / PATTERN)
    (tmp_path / "x.csv").write_text("a\n1\n")
    with pytest.raises(PlanError, match="one kind at a time"):
        pack([tmp_path / "x.csv", pets], tmp_path / PATTERN)
    with pytest.raises(PlanError, match="folders of images"):
        pack(tmp_path / "x.csv", tmp_path / PATTERN, labels={})
    with pytest.raises(NotFoundError):
        pack(tmp_path / "gone", tmp_path / PATTERN)
    assert left(tmp_path) == []


# -- CSV -----------------------------------------------------------------------------------------------


def csv_file(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


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
        ("a,b\n", NotFoundError, "no record in it"),
        ("\n", FormatError, "without the header"),
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


# -- NumPy ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(order: Any, tmp_path: Path) -> None:
    data = np.asarray(np.arange(3000 * 6).reshape(3000, 2, 3), order=order)
    np.save(tmp_path / "x.npy", data)
    found = examples(pack(tmp_path / "x.npy", tmp_path / PATTERN))
    assert [one["data"] for one in found] == data.reshape(3000, 6).tolist()


def test_npz_and_arrays_in_memory(tmp_path: Path) -> None:
    arrays = {
        "x": np.linspace(0, 1, 8).reshape(4, 2),
        "y": np.array([True, False, True, True]),
        "name": np.array(["a", "bc", "", "é"]),
        "u": np.arange(4, dtype="u1"),
    }
    np.savez_compressed(tmp_path / "x.npz", **arrays)
    for i, source in enumerate([tmp_path / "x.npz", arrays]):
        report = pack(source, tmp_path / f"{i}-{{shard}}")
        assert report.features == {"x": "float32", "y": "int64", "name": "bytes", "u": "int64"}
        assert "float64 is stored as float32" in report.notes[0]
        found = examples(report)
        assert [one["y"] for one in found] == [[1], [0], [1], [1]]
        assert [one["name"] for one in found] == [[b"a"], [b"bc"], [b""], ["é".encode()]]
        np.testing.assert_array_equal([one["x"] for one in found], arrays["x"].astype("f4"))


def test_fields_of_a_structured_array(tmp_path: Path) -> None:
    data = np.array([(1, 0.5, (1, 2)), (2, 1.5, (3, 4))], [("a", "i4"), ("b", "f4"), ("c", "i8", (2,))])
    np.save(tmp_path / "x.npy", data)
    for i, source in enumerate([tmp_path / "x.npy", data]):
        found = examples(pack(source, tmp_path / f"{i}{{shard}}"))
        assert found == [{"a": [1], "b": [0.5], "c": [1, 2]}, {"a": [2], "b": [1.5], "c": [3, 4]}]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.zeros(3), "b": np.zeros(4)}, "different lengths: 'a' 3, 'b' 4"),
        ({"a": np.zeros(3, complex)}, "complex128"),
        ({"a": np.array([object()])}, "object"),
        ({"a": np.array(3)}, "single value"),
        ({}, "no array"),
    ],
)
def test_arrays_that_do_not_fit(arrays: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=message):
        pack(arrays, tmp_path / PATTERN)
    assert left(tmp_path) == []


def test_damaged_numpy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(1000))
    content = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(content[:-8])
    with pytest.raises(TruncatedFileError, match="8,120 of 8,128"):
        pack(tmp_path / "x.npy", tmp_path / PATTERN)
    (tmp_path / "x.npy").write_bytes(content[:70])
    with pytest.raises(FormatError, match="NumPy cannot read it"):
        pack(tmp_path / "x.npy", tmp_path / PATTERN)
    np.save(tmp_path / "o.npy", np.array([{}], object))
    with pytest.raises(FormatError, match="pickles"):
        pack(tmp_path / "o.npy", tmp_path / PATTERN)
    (tmp_path / "x.npz").write_bytes(b"PK\x03\x04 and nothing")
    with pytest.raises(FormatError, match="NumPy cannot read it"):
        pack(tmp_path / "x.npz", tmp_path / PATTERN)
    assert left(tmp_path) == []


# -- WebDataset ----------------------------------------------------------------------------------------


def tar_file(path: Path, members: list[tuple[str, bytes]], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


SAMPLES = [
    ("a/001.png", image()),
    ("a/001.cls", b"7\n"),
    ("a/001.json", b"{}"),
    ("a/002.jpg", image("JPEG", size=(8, 9))),
    ("a/002.cls", b"-1"),
    ("a/002.left.png", b"not looked at"),
    ("a/002.TXT", b"hello"),
]


@pytest.mark.parametrize("packing", ["", "gz", "bz2", "xz"])
def test_webdataset(packing: str, tmp_path: Path) -> None:
    path = tar_file(tmp_path / f"x.tar.{packing}".rstrip("."), SAMPLES, f"w:{packing}")
    report = pack(path, tmp_path / PATTERN)
    first, second = examples(report)
    assert (first["key"], first["label"], first["json"]) == ([b"a/001"], [7], [b"{}"])
    assert first["image_raw"] == [SAMPLES[0][1]]
    assert (first["height"], first["width"], first["depth"]) == ([3], [5], [3])
    assert (second["label"], second["txt"], second["left.png"]) == ([-1], [b"hello"], [b"not looked at"])
    assert (report.kind, report.features["label"], report.features["txt"]) == ("webdataset", "int64", "bytes")


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.png", b"hello")], "1: plain text"),
        ([("1.cls", b"dog")], r"\.cls is no integer"),
        ([("1.png", image()), ("1.jpg", image("JPEG"))], "two images"),
        ([("1.label", b"")], "feature already"),
    ],
)
def test_bad_samples_are_named_or_skipped(
    members: list[tuple[str, bytes]], message: str, tmp_path: Path
) -> None:
    path = tar_file(tmp_path / "x.tar", [*members, ("2.txt", b"fine")])
    with pytest.raises(ShardkeepError, match=message):
        pack(path, tmp_path / PATTERN)
    assert left(tmp_path) == []
    report = pack(path, tmp_path / PATTERN, on_bad="skip")
    assert (report.skipped, [one["key"] for one in examples(report)]) == (1, [[b"2"]])


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ([("1.txt", b""), ("2.txt", b""), ("1.json", b"")], "do not follow each other"),
        ([("1.txt", b"a"), ("1.txt", b"b")], "twice"),
        ([("readme", b"a")], r"KEY\.EXTENSION"),
    ],
)
def test_archives_that_are_no_webdataset(
    members: list[tuple[str, bytes]], message: str, tmp_path: Path
) -> None:
    with pytest.raises(FormatError, match=message):
        pack(tar_file(tmp_path / "x.tar", members), tmp_path / PATTERN, on_bad="skip")
    assert left(tmp_path) == []


@pytest.mark.parametrize("packing", ["", "gz"])
def test_every_cut_of_an_archive_is_noticed(packing: str, tmp_path: Path) -> None:
    members = [(f"{i}.bin", bytes([i + 1]) * 700) for i in range(4)]
    content = tar_file(tmp_path / "x.tar", members, f"w:{packing}").read_bytes()
    path = tmp_path / "cut.tar"
    # Two blocks of zeros are the end, and GNU tar pads to 10,240 bytes; one of them must do.
    for length in range(30, len(content), 7) if packing else range(256, 4 * 1536 + 1, 256):
        path.write_bytes(content[:length])
        with pytest.raises((CorruptDataError, FormatError)):
            pack(path, tmp_path / PATTERN, kind="webdataset")
    assert left(tmp_path) == []
    if not packing:
        path.write_bytes(content[: 4 * 1536 + 1024])
        assert pack(path, tmp_path / PATTERN).records == 4


def test_an_archive_without_members(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no record in it"):
        pack(tar_file(tmp_path / "x.tar", []), tmp_path / PATTERN, kind="webdataset")


def test_joined_archives_are_not_cut_short(tmp_path: Path) -> None:
    one = tar_file(tmp_path / "a.tar", [("1.txt", b"a")])
    two = tar_file(tmp_path / "b.tar", [("2.txt", b"b")])
    joined = tmp_path / "c.tar"
    joined.write_bytes(one.read_bytes() + two.read_bytes())
    with pytest.raises((FormatError, TruncatedFileError), match="end"):
        pack(joined, tmp_path / PATTERN)
    assert len(examples(pack([one, two], tmp_path / PATTERN))) == 2


# -- Parquet and Arrow ---------------------------------------------------------------------------------


def test_without_pyarrow_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "x.parquet").write_bytes(b"PAR1")
    with pytest.raises(MissingExtraError, match=r'pip install "shardkeep\[arrow\]"'):
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
    with pytest.raises(SchemaError, match="its columns are not those of"):
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

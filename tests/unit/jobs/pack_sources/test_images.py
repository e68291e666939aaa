from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep.errors import (
    CorruptDataError,
    FormatError,
    NotFoundError,
    PlanError,
    SchemaError,
    ShardkeepError,
)
from shardkeep.jobs import pack
from shardkeep.jobs.pack_sources.images import image_facts
from tests.unit.jobs.packing import PATTERN, examples, image, left

Pillow = pytest.importorskip("PIL.Image")


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
    with pytest.raises(SchemaError, match="'dog' is not one of the 1 labels"):
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
    with pytest.raises(NotFoundError, match="have no image"):
        pack(tmp_path / "none", tmp_path / PATTERN)
    (pets / "loose.png").write_bytes(image())
    with pytest.raises(SchemaError, match=r"loose\.png and Cat/"):
        pack(pets, tmp_path / PATTERN)
    (pets / "loose.png").unlink()
    (pets / "dog/deep/loop").symlink_to(pets / "dog")
    with pytest.raises(SchemaError, match="link to a folder"):
        pack(pets, tmp_path / PATTERN)
    assert left(tmp_path) == []


def test_all_bad_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/readme.png").write_text("hello")
    with pytest.raises(NotFoundError, match=r"has no record; .*readme\.png"):
        pack(tmp_path / "in", tmp_path / PATTERN, on_bad="skip")
    assert left(tmp_path) == []

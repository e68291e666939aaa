"""Features as texts and images."""

from __future__ import annotations

import numpy as np
import pytest

from shardkeep.tfrecord import encode_example, encode_sequence_example
from shardkeep.viewer.data.features import content_of, hexadecimal, image_type, is_text, value_of

from .record_makers import PNG


def test_an_example_has_images_numbers_and_text():
    data = encode_example({"image": [PNG, b"text"], "label": 3, "x": [0.5, 1e-9], "none": None})
    content = content_of(data, whole=False)
    assert content.form == "Example"
    image, label, none, x = content.features
    assert image.images == (0,) and image.text == "text" and image.count == 2
    assert (label.text, x.text, none.type) == ("3", "0.5, 1e-09", "none")


def test_a_feature_of_a_million_values_is_short():
    data = encode_example({"x": np.arange(1_000_000), "b": b"\0" * 1_000_000, "t": "é" * 100_000})
    for one in content_of(data, whole=True).features:
        assert len(one.text) < 30_000 and one.is_cut
    for one in content_of(data, whole=False).features:
        assert len(one.text) < 200 and one.is_cut
    assert content_of(data, whole=True).features[2].count == 1_000_000


def test_a_record_of_many_features_shows_the_first_ones():
    example = encode_example({f"f{number:04}": number for number in range(1000)})
    lists = encode_sequence_example({"id": 7}, {f"l{number:04}": [[1], [2]] for number in range(500)})
    for data, count in ((example, 1000), (lists, 1001)):
        for whole, most in ((True, 200), (False, 40)):
            content = content_of(data, whole=whole)
            assert (len(content.features), content.more) == (most, count - most)


def test_a_sequence_shows_its_steps():
    data = encode_sequence_example({"id": 7}, {"words": [[b"a"], [PNG]], "t": [[0.5]] * 100})
    content = content_of(data, whole=True)
    assert content.form == "SequenceExample"
    assert content.features[0].text == "7"
    names = [one.name for one in content.features]
    assert "words, step 1 of 2" in names and "t, step 49 of 100" in names and len(names) == 53
    assert value_of(data, "words/1", 0) == PNG
    assert value_of(data, "words/2", 0) is None and value_of(data, "id", 0) is None


@pytest.mark.parametrize("data", [b"", b"hello", b"\x00\x01\xff" * 9, PNG, b'{"a": 1}', b"\x0a\xff\xff"])
def test_any_bytes_have_a_content(data):
    assert content_of(data, whole=True).form


def test_images_are_recognised_by_their_first_bytes():
    assert image_type(PNG) == "image/png"
    assert image_type(b"\xff\xd8\xff\xe0") == "image/jpeg"
    assert image_type(b"GIF89a") == "image/gif"
    assert image_type(b"RIFF\0\0\0\0WEBPVP8 ") == "image/webp"
    assert image_type(b"<svg onload=alert(1)>") is None and image_type(b"<html>") is None


def test_text_has_no_control_characters():
    assert is_text("grün\n".encode()) and not is_text(b"\x1b[31m") and not is_text("\u202e".encode())


def test_hexadecimal_lines_have_the_offset():
    assert hexadecimal(bytes(16) + b"abc\xff").split()[-6:] == ["10", "61", "62", "63", "ff", "abc."]


def test_a_hostile_name_is_escaped():
    content = content_of(encode_example({"\u202egnp": 1}), whole=True)
    assert content.features[0].name == "\\u202egnp" and content.features[0].address == "\u202egnp"

"""Curves and images of datasets.

Covers `shardkeep.viewer.hdf5.child.plots` and `shardkeep.viewer.hdf5.child.pictures`.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image


def test_a_curve_of_few_rows_has_each_value(page, file):
    file["x"] = [1.0, np.nan, 3.0]
    file.close()
    curve = page().get("0/a.h5?at=/x&part=curve").json()
    assert curve["x"] == [0, 1, 2] and curve["series"][0]["values"] == [1.0, None, 3.0]


def test_a_curve_of_many_rows_keeps_each_peak(page, shown, file):
    values = np.zeros(100_003)
    values[77_777], values[5] = 9, -3
    file.create_dataset("x", data=values, chunks=(1000,))
    file.close()
    curve = page().get("0/a.h5?at=/x&part=curve").json()
    low, high = (one["values"] for one in curve["series"])
    assert len(curve["x"]) == 1000 and max(high) == 9 and min(low) == -3
    assert abs(curve["x"][high.index(9)] - 77_777) <= 101
    text = shown("0/a.h5?at=/x&show=plot")[1]
    assert "Values from -3 to 9." in text and "100,003 rows in 1,000 parts" in text


def test_a_curve_of_a_huge_dataset_is_sampled(page, shown, file):
    file.create_dataset("x", (10**9,), "f4", chunks=(10_000,), fillvalue=2.0)
    file.close()
    curve = page().get("0/a.h5?at=/x&part=curve").json()
    assert curve["read"] <= 4_500_000 and set(curve["series"][0]["values"]) == {2.0}
    text = shown("0/a.h5?at=/x&show=plot")[1]
    assert "Sampled:" in text and "of 1,000,000,000" in text
    assert "Sampled:" not in shown("0/a.h5?at=/x&show=plot&first=5&stop=1005")[1]


def test_a_field_of_a_table_has_a_curve(page, shown, file):
    file["x"] = np.array([(1, 2.5), (2, 3.5)], [("id", "i4"), ("loss", "f4")])
    file.close()
    curve = page().get("0/a.h5?at=/x&part=curve&field=loss").json()
    assert curve["series"] == [{"name": "loss", "values": [2.5, 3.5]}]
    assert "id loss" in shown("0/a.h5?at=/x&show=plot")[1]


@pytest.mark.parametrize(
    ("values", "index", "mode", "pixels"),
    [
        (np.array([[0, 255], [7, 9]], "u1"), 0, "L", [[0, 255], [7, 9]]),
        (np.arange(24, dtype="u1").reshape(2, 2, 2, 3), 1, "RGB", np.arange(12, 24).reshape(2, 2, 3)),
        (np.array([[1.0, 3.0]]), 0, "L", [[0, 255]]),
        (np.array([[1.0, np.nan, np.inf, 2.0]]), 0, "LA", [[[0, 255], [0, 0], [0, 0], [255, 255]]]),
        (np.array([[[5, 5]], [[6, 8]]]), 1, "L", [[0, 255]]),
        (np.array([[True, False]]), 0, "L", [[255, 0]]),
    ],
)
def test_an_image_has_the_values(page, file, values, index, mode, pixels):
    file["x"] = values
    file.close()
    answer = page().get(f"0/a.h5?at=/x&part=picture&first={index}")
    assert answer.headers["content-type"] == "image/png"
    image = Image.open(io.BytesIO(answer.content))
    assert image.mode == mode
    np.testing.assert_array_equal(np.asarray(image), pixels)


def test_a_large_image_is_scaled_down(page, shown, file):
    file.create_dataset("x", data=np.arange(3000 * 20).reshape(3000, 20))
    file.create_dataset("huge", (50_000, 40_000), "f4", chunks=(1000, 1000))
    file.close()
    assert Image.open(io.BytesIO(page().get("0/a.h5?at=/x&part=picture").content)).size == (7, 1000)
    text = shown("0/a.h5?at=/x&show=image")[1]
    assert "Black is 0" in text
    assert "50,000 × 40,000 values" in shown("0/a.h5?at=/huge&show=image")[1]


def test_an_image_of_many_has_a_slider(page, file):
    file["x"] = np.zeros((4, 6, 5, 7))
    file.close()
    text = page().get("0/a.h5?at=/x&show=image&first=13").text
    assert 'max="23"' in text and 'type="range"' in text and "at index 2, 1" in text

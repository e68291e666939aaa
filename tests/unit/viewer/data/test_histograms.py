"""Histograms of sizes, values and lengths."""

from __future__ import annotations

import numpy as np

from shardkeep.tfrecord import Writer

from .record_makers import write_examples


def test_each_feature_has_its_charts(page, tmp_path):
    write_examples(tmp_path / "a.tfrecord", 60)
    client = page()
    text = client.get("0/a.tfrecord?view=distributions").text
    assert "All 60 records" in text
    assert "label: values" in text and "weights: number of values" in text and "text: most common" in text
    assert "image: bytes" not in text  # all are equal
    labels = client.get("0/a.tfrecord?view=distributions&part=chart&of=values&feature=label").json()
    assert labels["x"] == list(range(11)) and labels["series"][0]["values"] == [6] * 10 + [None]
    sizes = client.get("0/a.tfrecord?view=distributions&part=chart&of=sizes").json()
    assert sum(sizes["series"][0]["values"][:-1]) == 60
    lengths = client.get("0/a.tfrecord?view=distributions&part=chart&of=lengths&feature=weights").json()
    assert lengths["series"][0]["values"] == [20, 20, 20, None]
    assert client.get("0/a.tfrecord?view=distributions&part=chart&of=values&feature=x").status_code == 404


def test_a_sample_is_spread_over_the_file(page, tmp_path):
    write_examples(tmp_path / "a.tfrecord", 3000)
    text = page().get("0/a.tfrecord?view=distributions").text
    assert "records of 3,000, spread evenly" in text


def test_values_that_are_not_finite_have_no_bar(page, tmp_path):
    with Writer(tmp_path / "a.tfrecord") as writer:
        writer.write_example({"x": [np.nan, np.inf]})
        writer.write_example({"x": [-(2.0**100)]})
        writer.write_example({"y": [2**63 - 1, -(2**63)]})
    client = page()
    for name, count in (("x", 1), ("y", 2)):
        chart = client.get(f"0/a.tfrecord?view=distributions&part=chart&of=values&feature={name}").json()
        assert sum(chart["series"][0]["values"][:-1]) == count


def test_raw_records_have_sizes_only(page, tmp_path):
    with Writer(tmp_path / "a.tfrecord") as writer:
        writer.write(b"one")
    text = page().get("0/a.tfrecord?view=distributions").text
    assert "Sizes of the records" in text and "values" not in text.partition("<main")[2]

"""The pages of records: grid, one record, images, search."""

from __future__ import annotations

import re

import pytest

from shardkeep.tfrecord import Writer
from shardkeep.viewer.data import records

from .record_makers import PNG, write_examples


@pytest.fixture
def client(page, tmp_path):
    write_examples(tmp_path / "a.tfrecord", 60)
    return page()


def test_a_grid_has_images_labels_and_pages(client):
    text = client.get("0/a.tfrecord").text
    assert text.count("<img") == 24 and "word-23" in text and "word-24" not in text
    assert "0–23 of 60" in text and "first=24" in text
    last = client.get("0/a.tfrecord?first=48").text
    assert "word-59" in last and "next →</a>" not in last


def test_an_image_is_sent_as_it_is_stored(client):
    text = client.get("0/a.tfrecord").text
    source = re.search(r'src="([^"]*part=value[^"]*)"', text)[1].replace("&amp;", "&")
    answer = client.get(f"http://127.0.0.1:8000{source}")
    assert answer.content == PNG and answer.headers["content-type"] == "image/png"
    assert "sandbox" in answer.headers["content-security-policy"]
    other = client.get("0/a.tfrecord?part=value&record=1&feature=text&number=0")
    assert other.headers["content-type"] == "application/octet-stream"
    assert client.get("0/a.tfrecord?part=value&record=1&feature=none").status_code == 404


def test_a_record_has_a_page(client):
    text = client.get("0/a.tfrecord?record=5").text
    assert "word-5" in text and "1.25, 1.25, 1.25" in text and "Bytes of the record" in text
    answer = client.get("0/a.tfrecord?record=60")
    assert answer.status_code == 404 and "the file has 60" in answer.text


def test_records_are_found_by_a_value(client):
    text = client.get("0/a.tfrecord?feature=label&value=3").text
    assert text.count("<img") == 6 and "6 records found among records 0 to 59" in text
    assert "to the end of the file" in text
    assert client.get("0/a.tfrecord?value=word-58").text.count("<img") == 1
    assert "0 records found" in client.get("0/a.tfrecord?feature=label&value=word").text


def test_a_search_stops_and_continues(client, monkeypatch):
    monkeypatch.setattr(records, "BUDGET_S", 0.0)
    text = client.get("0/a.tfrecord?value=word-58").text
    assert "0 records found among records 0 to 31" in text and "first=32" in text
    assert "word-58" in client.get("0/a.tfrecord?value=word-58&first=32").text


def test_damage_and_other_bytes_have_a_card(page, tmp_path):
    with Writer(tmp_path / "raw.tfrecord") as writer:
        writer.write(b"plain <b>text</b>")
        writer.write(b"\x00\xff" * 40)
        writer.write(PNG)
    data = bytearray((tmp_path / "raw.tfrecord").read_bytes())
    data[-5] ^= 1
    (tmp_path / "raw.tfrecord").write_bytes(data)
    text = page().get("0/raw.tfrecord").text
    assert "plain &lt;b&gt;text" in text and "(80 bytes)" in text and 'class="damaged"' in text


def test_an_empty_and_a_compressed_file(page, tmp_path):
    with Writer(tmp_path / "a.gz", compression="gzip") as writer:
        for number in range(30):
            writer.write(b"record %d" % number)
    text = page().get("0/a.gz").text
    assert "record 23" in text and "first=24" in text
    answer = page().get("0/a.gz?value=x")
    assert answer.status_code == 422 and "compressed" in answer.text

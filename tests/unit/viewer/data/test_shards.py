"""The page of a data set."""

from __future__ import annotations

from .record_makers import write_examples


def test_a_set_has_totals_and_findings(page, tmp_path):
    for number in (0, 2):
        write_examples(tmp_path / f"train-{number}-of-3.tfrecord", 4)
    text = page().get("0").text
    assert ">8</strong><span>records" in text and "shard 1 is missing" in text
    assert "headers are whole" in text


def test_faulty_shards_can_be_listed_alone(page, tmp_path):
    path = write_examples(tmp_path / "a-0.tfrecord", 4)
    write_examples(tmp_path / "a-1.tfrecord", 4)
    write_examples(tmp_path / "a-2.tfrecord", 4)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    data.append(1)
    (tmp_path / "a-1.tfrecord").write_bytes(data)
    (tmp_path / "a-2.tfrecord").write_bytes(b"")
    client = page()
    text = client.get("0").text
    assert "a-0.tfrecord" in text and 'class="text bad"' in text and ">empty<" in text
    only = client.get("0?view=data&only=faulty").text
    assert "a-1.tfrecord" in only and "a-0.tfrecord" not in only


def test_a_folder_without_records_has_no_such_view(page, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    assert "Data set" not in page().get("0").text


def test_the_last_page_of_the_faulty_shards_is_shown_if_there_are_fewer(page, tmp_path):
    for number in range(150):
        write_examples(tmp_path / f"a-{number:03d}.tfrecord", 1)
    (tmp_path / "a-007.tfrecord").write_bytes(bytes(40))
    assert "a-007.tfrecord" in page().get("0?view=data&only=faulty&first=100").text


def test_shards_have_pages(page, tmp_path):
    write_examples(tmp_path / "a-0.tfrecord", 1)
    for number in range(1, 205):
        (tmp_path / f"a-{number:03d}.tfrecord").write_bytes((tmp_path / "a-0.tfrecord").read_bytes())
    text = page().get("0?view=data&first=100").text
    assert "100–199 of 205" in text and text.count("headers are whole") == 100

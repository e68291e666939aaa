"""The page of damage: check, byte map, hex view. Covers `shardkeep.viewer.data.hex_lines`."""

from __future__ import annotations

import html
import os
import re
import subprocess
import time

import pytest

from shardkeep.jobs.salvage.report import RepairedPart
from shardkeep.tfrecord import Writer, build_index
from shardkeep.viewer.data import damage
from shardkeep.viewer.data.damage import byte_map

from .record_makers import write_examples


@pytest.fixture
def damaged(tmp_path):
    """A file of 60 records with a flipped bit in record 10 and three damaged bytes in record 30."""
    path = write_examples(tmp_path / "a.tfrecord", 60)
    starts = build_index(path).starts
    path.with_suffix(".tfrecord.skidx").unlink()
    data = bytearray(path.read_bytes())
    data[int(starts[10]) + 20] ^= 1
    for number in (20, 25, 33):
        data[int(starts[30]) + number] ^= 0x5A
    path.write_bytes(data)
    return path, int(starts[30])


def _settled(client, address):
    text = client.get(address).text
    for _ in range(600):
        if "Checking" not in text:
            return text
        time.sleep(0.05)
        text = client.get(address).text
    raise AssertionError("the check does not end")


def test_damage_is_shown_with_its_repair(page, damaged):
    path, start = damaged
    text = _settled(page(), "0/a.tfrecord?view=damage")
    assert ">58</strong><span>whole" in text and ">1</strong><span>repairable" in text
    assert "repairable at byte" in text and f"at={start}" in text
    assert f"shardkeep repair {path}" in text
    assert os.listdir(path.parent) == ["a.tfrecord"]


def test_a_whole_file_has_no_damage(page, tmp_path):
    write_examples(tmp_path / "a.tfrecord", 5)
    text = _settled(page(), "0/a.tfrecord?view=damage")
    assert "No damage" in text and "shardkeep repair" not in text


def test_a_large_file_is_checked_on_request(page, damaged, monkeypatch):
    monkeypatch.setattr(damage, "_SMALL_BYTES", 10)
    client = page()
    text = client.get("0/a.tfrecord?view=damage").text
    assert "Check this file" in text and "repairable at byte" not in text
    client.get("0/a.tfrecord?view=damage&check=1")
    assert "repairable at byte" in _settled(client, "0/a.tfrecord?view=damage&part=progress")


def test_bytes_have_the_fields_of_their_frames(page, damaged):
    _, start = damaged
    client = page()
    text = client.get(f"0/a.tfrecord?view=damage&at={start}").text
    assert 'class="header"' in text and 'class="payload"' in text
    assert client.get("0/a.tfrecord?view=damage&at=999999999").status_code == 200


def test_a_compressed_file_has_a_check(page, tmp_path):
    with Writer(tmp_path / "a.tfrecord.gz", compression="gzip") as writer:
        for number in range(1000):
            writer.write(b"record %d" % number)
    data = (tmp_path / "a.tfrecord.gz").read_bytes()
    (tmp_path / "a.tfrecord.gz").write_bytes(data[: len(data) // 2])
    text = _settled(page(), "0/a.tfrecord.gz?view=damage&at=0")
    assert "lost" in text and "Damaged ranges" in text


def test_a_cell_of_the_map_has_the_worst_outcome():
    parts = [
        RepairedPart("kept", "", 1, 0, 5000),
        RepairedPart("repaired", "", 1, 5000, 1),
        RepairedPart("lost", "", 1, 5001, 100_000),
    ]
    found = byte_map(parts, 1 << 20)
    assert found[0].outcome == "lost" and found[0].y == 0 and found[0].x == 4
    assert sum(one.cells for one in found) == 99
    assert byte_map([RepairedPart("kept", "", 1, 0, 5)], 5) == []


@pytest.mark.parametrize("name", ["a b's.tfrecord", "\udcff.tfrecord"])
def test_the_command_that_is_shown_repairs_the_file(page, damaged, tmp_path, name):
    damaged[0].rename(tmp_path / name)
    text = page(tmp_path / name).get("0?view=damage").text
    arguments = html.unescape(re.search("<code>shardkeep repair (.*?)</code>", text)[1])
    script = f'set -- {arguments}; test -f "$1" && ! test -e "$2" && test "${{2%.tfrecord}}" != "$2"'
    subprocess.run(["bash", "-c", script], check=True)

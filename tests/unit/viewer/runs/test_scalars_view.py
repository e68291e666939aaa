"""Curves of event files.

Covers `shardkeep.viewer.runs.event_files` and `shardkeep.viewer.runs.series`.
"""

from __future__ import annotations

import math
import subprocess
import sys
import tracemalloc

import pytest

from shardkeep.viewer.runs import event_files
from shardkeep.viewer.runs.series import Series
from tests.waiting import eventually

NAME = "events.out.tfevents.1700000000.host"
# Copies the first file to the second one, with a pause inside a record.
WRITER = """
import sys
data = open(sys.argv[1], "rb").read()
with open(sys.argv[2], "ab", buffering=0) as file:
    for at in (len(data) // 2, len(data)):
        file.write(data[file.tell():at])
        print(at, flush=True)
        sys.stdin.readline()
"""


@pytest.fixture(autouse=True)
def _nothing_is_known():
    event_files.recent_files._known.clear()


def test_several_runs_have_curves_and_last_values(page, shown, tmp_path, write_events):
    write_events(tmp_path / "a" / NAME, [("loss", step, 1 / (step + 1)) for step in range(10)])
    write_events(tmp_path / "b" / NAME, [("loss", 2 * step, 5.0) for step in range(5)] + [("acc", 0, 0.5)])
    status, text = shown("0")
    assert status == 200 and "2 runs, 2 event files" in text
    assert "loss a 9 0.1 0.1 1 10" in text and "loss b 8 5 5 5 5" in text and "acc b 0 0.5" in text
    curve = page().get("0?view=scalars&part=curve&tag=loss").json()
    assert [one["name"] for one in curve["series"]] == ["a", "b"]
    assert curve["x"] == list(range(10)) and curve["series"][1]["values"][:3] == [5.0, None, 5.0]
    assert page().get("0?view=scalars&part=curve&tag=loss&run=b").json()["x"] == [0, 2, 4, 6, 8]
    assert "loss" not in shown("0?view=scalars&find=acc")[1]
    assert "No tag has such a name." in shown("0?view=scalars&find=none")[1]
    assert "Last values" in shown(f"0/a/{NAME}")[1]


def test_a_resumed_run_has_each_step_as_it_was_written_last(page, tmp_path, write_events):
    write_events(tmp_path / NAME, [("loss", step, 1.0) for step in range(10)])
    write_events(
        tmp_path / NAME.replace("1700000000", "1700000009"), [("loss", step, 2.0) for step in (6, 7)]
    )
    curve = page().get("0?view=scalars&part=curve&tag=loss").json()
    assert curve["x"] == list(range(8)) and curve["series"][0]["values"] == [1.0] * 6 + [2.0] * 2


def test_a_file_is_followed_while_a_process_writes_it(page, shown, tmp_path, write_events):
    logs = tmp_path / "logs"
    write_events(logs / NAME, [("loss", 0, 1.0)])
    write_events(tmp_path / "all", [("loss", step, float(step)) for step in range(101)])
    client = page(logs)
    assert client.get("0?view=scalars&part=curve&tag=loss").json()["x"] == [0]
    (logs / NAME).write_bytes(b"")
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path / "all"), str(logs / NAME)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        writer.stdout.readline()
        half = client.get("0?view=scalars&part=curve&tag=loss").json()["x"]
        assert 40 <= len(half) <= 52 and half == list(range(len(half)))
        assert "damaged" not in client.get("0?view=scalars").text
        writer.stdin.write("\n")
        writer.stdin.flush()
        writer.stdout.readline()
        file = next(iter(event_files.recent_files._known.values())).files[str(logs / NAME)]
        before = file.series["loss"]
        eventually(lambda: len(client.get("0?view=scalars&part=curve&tag=loss").json()["x"]) == 101)
        assert file.series["loss"] is before  # what was read is not read again
        writer.stdin.close()


def test_damage_is_shown_and_the_values_before_it(shown, tmp_path, write_events):
    path = tmp_path / NAME
    write_events(path, [("loss", step, 1.0) for step in range(10)])
    content = bytearray(path.read_bytes())
    content[-30] ^= 1
    path.write_bytes(content)
    text = shown("0?view=scalars")[1]
    assert "loss . 8 1" in text and "shardkeep verify" in text and "record 10 at byte" in text


def test_an_event_file_behind_a_link_to_elsewhere_is_not_read(page, tmp_path, write_events):
    write_events(tmp_path / "secret" / NAME, [("secret", 0, 4242.0)])
    root = tmp_path / "root"
    write_events(root / NAME, [("loss", 0, 1.0)])
    (root / f"link.{NAME}").symlink_to(tmp_path / "secret" / NAME)
    (root / "folder").symlink_to(tmp_path / "secret")
    text = page(root).get("0?view=scalars").text
    assert "loss" in text and "4242" not in text


def test_a_series_of_a_million_values_keeps_its_peaks():
    series = Series()
    for step in range(300_000):
        series.add(step, 9.0 if step == 123_456 else -3.0 if step == 7 else math.nan if step % 2 else 0.0)
    points = series.points()
    assert len(points) <= 2048 and (123_456, 9.0) in points and (7, -3.0) in points
    assert (series.low, series.high, series.count, series.first_step) == (-3.0, 9.0, 300_000, 0)
    assert [step for step, _ in points] == sorted(step for step, _ in points)


def test_a_series_takes_little_memory_and_has_a_limit():
    tracemalloc.start()
    series = [Series() for _ in range(50)]
    for one in series:
        for step in range(1024):
            one.add(step, step / 3)
    assert tracemalloc.get_traced_memory()[0] / len(series) < 50_000
    tracemalloc.stop()
    series[0].limit(100)
    for step in range(1024, 5000):
        series[0].add(step, step / 3)
    points = series[0].points()
    assert 100 < len(points) <= 200 and points[0] == (0, 0.0) and points[-1] == (4999, 4999 / 3)


def test_many_curves_have_fewer_parts_each(page, tmp_path, write_events, monkeypatch):
    monkeypatch.setattr(event_files, "_ALL_PARTS", 400)
    monkeypatch.setattr(event_files, "_MOST_SERIES", 5)
    for run in ("a", "b"):
        values = [(f"tag-{tag}", step, 0.5 * step) for tag in range(4) for step in range(500)]
        write_events(tmp_path / run / NAME, values)
    client = page()
    curve = client.get("0?view=scalars&part=curve&tag=tag-0").json()
    assert [one["name"] for one in curve["series"]] == ["a", "b"] and 80 < len(curve["x"]) <= 320
    assert len(client.get("0?view=scalars&part=curve&tag=tag-3").json()["series"]) == 1


def test_hostile_tags_are_escaped(page, tmp_path, write_events):
    write_events(tmp_path / NAME, [("<script>alert(1)</script>\u202e", 0, math.nan)])
    text = page().get("0?view=scalars").text
    assert "<script>alert" not in text and "\u202e" not in text.replace("%E2%80%AE", "")
    tag = "%3Cscript%3Ealert(1)%3C/script%3E%E2%80%AE"
    assert page().get(f"0?view=scalars&part=curve&tag={tag}").json()["series"][0]["values"] == [None]

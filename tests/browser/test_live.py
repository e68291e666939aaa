"""Views that follow a writing process, in Chromium: new values without a load, and a server that ends."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from shardkeep.jobs import verify
from shardkeep.tfrecord import Writer
from tests.browser.conftest import EVENTS, playwright, ready, served
from tests.unit.viewer.runs.event_makers import write_events

expect = playwright.expect
MARK = "window.loadedOnce = true"
WAS_KEPT = "window.loadedOnce === true"

# Each line of standard input: a number of bytes, up to which the first file is appended to the second one.
APPENDER = """
import sys
data = open(sys.argv[1], "rb").read()
with open(sys.argv[2], "ab", buffering=0) as file:
    for line in sys.stdin:
        file.write(data[file.tell():int(line)])
        print("written", flush=True)
"""
# Each line: a number of commits; the answer is the median of their times in seconds.
COMMITTER = """
import statistics, sys, time
import numpy as np
from shardkeep import World
from shardkeep.hdf5 import WorkerFile
step = 0
with WorkerFile(sys.argv[1], World()) as worker:
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            worker.append("loss", np.zeros(100))
            begin = time.perf_counter()
            worker.commit(step=step)
            times.append(time.perf_counter() - begin)
            step += 1
        print(statistics.median(times), flush=True)
"""


class Child:
    """A child process that answers each line with a line."""

    def __init__(self, script: str, *arguments: pathlib.Path) -> None:
        command = [sys.executable, "-c", script, *map(str, arguments)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line: object) -> str:
        print(line, file=self.process.stdin, flush=True)
        return self.process.stdout.readline().strip()

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """The address and the folder of a page; its folder has "logs" and "runs"."""
    folder = tmp_path_factory.mktemp("live")
    with served(folder) as (address, _):
        yield address + "0/", folder


def locks(folder: pathlib.Path) -> list[str]:
    """Return the locks that any process holds of files in a folder."""
    inodes = {str(one.stat().st_ino) for one in folder.rglob("*")}
    lines = pathlib.Path("/proc/locks").read_text().splitlines()
    return sorted(line.partition(": ")[2] for line in lines if line.split()[5].rpartition(":")[2] in inodes)


def test_scalars_that_a_process_appends_are_drawn_without_a_load(page, live, tmp_path):
    address, folder = live
    logs = folder / "logs"
    logs.mkdir()
    (logs / EVENTS).touch()
    source = tmp_path / "all"
    tags = [("loss", step, 1 / (step + 1)) for step in range(50)]
    tags += [("accuracy", step, step / 50) for step in range(50)]
    write_events(source, tags)
    size = source.stat().st_size
    with Child(APPENDER, source, logs / EVENTS) as writer:
        page.goto(address + "logs?view=scalars")
        page.evaluate(MARK)
        expect(page.get_by_text("There are no scalars yet.")).to_be_visible()
        writer.ask(size // 3)
        expect(page.get_by_role("heading", name="loss")).to_be_visible()
        canvas = page.locator(".chart canvas").first
        before = canvas.evaluate("one => one.toDataURL()")
        writer.ask(size)
        expect(page.get_by_role("heading", name="accuracy")).to_be_visible()
        expect(page.get_by_role("row", name="accuracy . 49 0.98")).to_be_visible()
        page.wait_for_function(
            "before => [...document.querySelectorAll('.chart canvas')].length === 2"
            " && [...document.querySelectorAll('.chart canvas')][1].toDataURL() !== before",
            arg=before,
        )
        assert page.evaluate(WAS_KEPT)
        assert locks(logs) == []
    assert (logs / EVENTS).read_bytes() == source.read_bytes()


def test_commits_are_shown_without_a_load_and_the_writer_is_not_disturbed(page, live):
    address, folder = live
    run = folder / "runs"
    with Child(COMMITTER, run) as writer:
        alone_s = float(writer.ask(20))
        held = locks(run)
        page.goto(address + "runs")
        page.evaluate(MARK)
        ready(page)
        link = page.get_by_role("region", name="Ranks").get_by_role("link")
        link.focus()
        before = page.locator(".chart canvas").evaluate("one => one.toDataURL()")
        shown_s = float(writer.ask(20))
        expect(page.get_by_role("listitem").filter(has_text="rows of loss")).to_contain_text("4,000")
        page.wait_for_function(
            "before => document.querySelector('.chart canvas').toDataURL() !== before", arg=before
        )
        expect(link).to_be_focused()
        assert page.evaluate(WAS_KEPT)
        assert locks(run) == held
        assert shown_s < 10 * alone_s + 0.1
    assert verify([run]).ok
    expect(page.locator(".facts")).to_contain_text("0 being written")


def test_a_view_says_that_the_server_has_ended_and_that_it_answers_again(page, tmp_path):
    (tmp_path / EVENTS).touch()
    write_events(tmp_path / "b" / EVENTS, [("loss", 0, 1.0)])
    with served(tmp_path) as (address, server):
        page.goto(address + "0?view=scalars")
        ready(page)
        notice = page.locator("#connection")
        expect(notice).to_be_empty()
        server.kill()
        server.wait()
        expect(notice).to_contain_text("No answer from the server since")
        expect(page.get_by_role("row", name="loss b 0 1")).to_be_visible()
    page.faults.clear()


def test_the_check_of_a_large_file_shows_its_result_without_a_load(page, live):
    address, folder = live
    with Writer(folder / "large.tfrecord") as writer:
        writer.write(b"text")
    os.truncate(folder / "large.tfrecord", 256 << 20)
    page.goto(address + "large.tfrecord?view=damage")
    page.get_by_role("button", name="Check this file").click()
    page.wait_for_url("**check=1")
    page.evaluate(MARK)
    expect(page.get_by_role("heading", name="Damaged ranges")).to_be_visible()
    assert page.evaluate(WAS_KEPT)


def test_a_view_says_that_its_folder_was_removed(page, live):
    address, folder = live
    write_events(folder / "gone" / EVENTS, [("loss", 0, 1.0)])
    page.goto(address + "gone?view=scalars")
    page.goto(address + "?view=files")
    (folder / "gone" / EVENTS).unlink()
    (folder / "gone").rmdir()
    page.get_by_role("link", name="gone").click()
    expect(page.get_by_role("alert")).to_contain_text("gone: no such file; it may have been removed")
    page.faults.clear()

"""Twenty pages of live views and data sets in Chromium while a run and event files are written."""

from __future__ import annotations

import contextlib
import pathlib
import statistics
import time

import pytest

from shardkeep.jobs import verify
from tests.browser.conftest import EVENTS, served
from tests.browser.test_live import APPENDER, COMMITTER, Child
from tests.browser.test_pages import PAGES
from tests.processes import descendants
from tests.unit.viewer.runs.event_makers import write_events

SECONDS = 30
VIEWS = [
    "4/runs",
    "4/logs",
    "0?view=data",
    "0?view=epoch&ranks=64&shuffle=global",
    "0/a-1.tfrecord",
    "1/results.h5?at=/rows",
    "1/results.h5?at=/curve&show=plot",
    "1/run",
    "1/trained?view=delivered",
    "2",
]


def memory_bytes(pid: int) -> int:
    """Return the memory of a process and of those that it started, each shared page counted once."""
    found = 0
    for one in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            lines = pathlib.Path(f"/proc/{one}/smaps_rollup").read_text().splitlines()
            found += 1024 * int(next(line.split()[1] for line in lines if line.startswith("Pss:")))
    return found


@pytest.mark.slow
def test_twenty_pages_are_served_while_files_are_written(site, browser, tmp_path):
    live = tmp_path / "live"
    (live / "logs").mkdir(parents=True)
    source = tmp_path / "all"
    write_events(source, [(f"tag-{step % 5}", step, step / 7) for step in range(20_000)])
    size = source.stat().st_size
    roots = [site / name for name in ("data", "results", "logs", "states")] + [live]
    answers: list[tuple[float, str]] = []
    faults: list[str] = []

    def finished(request) -> None:
        timing = request.timing
        answers.append((timing["responseEnd"] - timing["requestStart"], request.url.rpartition("/")[2]))

    with (
        served(*roots) as (address, server),
        Child(COMMITTER, live / "runs") as committer,
        Child(APPENDER, source, live / "logs" / EVENTS) as appender,
    ):
        committer.ask(10)
        appender.ask(size // 100)
        alone = memory_bytes(server.pid)
        context = browser.new_context()
        context.on("requestfinished", finished)
        context.on("requestfailed", lambda request: faults.append(f"{request.url}: {request.failure}"))
        context.on("response", lambda answer: answer.ok or faults.append(f"{answer.url}: {answer.status}"))
        context.on("console", lambda message: message.type == "error" and faults.append(message.text))
        pages = []
        for number in range(20):
            pages.append(context.new_page())
            pages[-1].goto(address + VIEWS[number % len(VIEWS)])
        most, times, done = 0, [], 1
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            times.append(float(committer.ask(5)))
            done = min(done + 1, 100)
            appender.ask(size * done // 100)
            pages[0].wait_for_timeout(500)
            most = max(most, memory_bytes(server.pid))
        assert faults == []
        context.close()
        appender.ask(size)
    assert verify([live]).findings == ()
    spent = sorted(answer[0] for answer in answers)
    print(  # noqa: T201  # the figures of docs/design/viewer.md
        f"{len(spent)} answers: median {statistics.median(spent):.0f} ms, 95 % below"
        f" {spent[len(spent) * 95 // 100]:.0f} ms; memory {alone / 2**20:.0f} MiB at the start, at most"
        f" {most / 2**20:.0f} MiB; a commit took {1000 * statistics.median(times):.1f} ms"
    )
    assert len(spent) > 200
    assert most < 300 * 2**20


@pytest.mark.slow
def test_no_view_takes_much_memory(site, browser):
    roots = [site / name for name in ("data", "results", "logs", "states")]
    with served(*roots) as (address, server):
        context = browser.new_context()
        page = context.new_page()
        for name, path in PAGES.items():
            page.goto(address + path)
            page.wait_for_timeout(300)
            print(f"{name}: {memory_bytes(server.pid) / 2**20:.0f} MiB")  # noqa: T201  # as above
            assert memory_bytes(server.pid) < 300 * 2**20
        context.close()

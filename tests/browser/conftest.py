"""A server of the page for all tests of this folder, and Chromium."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import h5py
import numpy as np
import pytest

from shardkeep import World
from shardkeep.hdf5 import WorkerFile
from shardkeep.tfrecord import Writer
from tests.processes import kept
from tests.unit.viewer.runs.event_makers import write_events
from tests.unit.viewer.runs.run_makers import train, write_shards
from tests.waiting import PATIENCE_S

playwright = pytest.importorskip("playwright.sync_api")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SERVE = (
    "import sys; from shardkeep.viewer import serve;"
    " serve(sys.argv[1:], started=lambda address: print(address, flush=True))"
)
EVENTS = "events.out.tfevents.1700000000.host"
HOSTILE = (
    "<script>alert(1)<∕script>".encode(),
    b'"onerror="alert(1)',
    b"two\nlines",
    b"not UTF-8 \xff\xfe",
    b"x" * 255,
)


@contextlib.contextmanager
def served(*paths: pathlib.Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Serve files and folders in a process; yield its address, and the process."""
    command = [sys.executable, "-c", SERVE, *map(str, paths)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip(), server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> pathlib.Path:
    """A folder with "data", "results", "logs" and "states", the roots of `address` in this order."""
    folder = tmp_path_factory.mktemp("site")
    data, results, logs, states = (folder / name for name in ("data", "results", "logs", "states"))
    for one in (data, results, states, states / "empty"):
        one.mkdir()
    for number in range(2):
        with Writer(data / f"a-{number}.tfrecord") as writer:
            for label in range(40):
                writer.write_example(
                    {"label": label % 10, "text": f"word-{label}", "x": [0.5] * (label % 3 + 1)}
                )
    damaged = bytearray((data / "a-0.tfrecord").read_bytes())
    damaged[30] ^= 1
    (data / "a-0.tfrecord").write_bytes(damaged)
    with h5py.File(results / "results.h5", "w") as file:
        file["rows"] = np.zeros(500, [("step", "i4"), ("loss", "f8")])
        file["images"] = np.arange(3 * 40 * 50, dtype=np.uint8).reshape(3, 40, 50)
        file["curve"] = np.arange(20.0)
    with WorkerFile(results / "run", World()) as out:
        out.append("loss", np.arange(5.0))
        out.commit(step=1)
    train(results / "trained", write_shards(folder / "shards"), [12, 11])
    for run in ("first", "second"):
        write_events(logs / run / EVENTS, [("loss", step, 1 / (step + 1)) for step in range(9)])
    for name in HOSTILE:
        path = os.path.join(os.fsencode(states), name)
        shutil.copy(data / "a-1.tfrecord", path)
    with Writer(states / "many.tfrecord") as writer:
        writer.write_example({"values": np.arange(1_000_000, dtype=np.int64)})
    (states / "nothing.tfrecord").touch()
    content = bytearray((results / "results.h5").read_bytes())
    content[100:2000] = b"\xff" * 1900
    (states / "damaged.h5").write_bytes(content)
    return folder


@pytest.fixture(scope="session")
def address(site):
    """The address of the page of `site`."""
    with served(*(site / name for name in ("data", "results", "logs", "states"))) as (found, server):
        kept.add(server.pid)
        yield found


@pytest.fixture(scope="session")
def browser():
    """Chromium."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    playwright.expect.set_options(timeout=1000 * PATIENCE_S)
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.fixture
def page(browser):
    """A page of the browser, in `faults` its errors; a test that expects some of them removes those."""
    opened = browser.new_page(viewport={"width": 1280, "height": 900})
    opened.set_default_timeout(1000 * PATIENCE_S)
    opened.faults = []
    opened.on("console", lambda message: message.type == "error" and opened.faults.append(message.text))
    opened.on("pageerror", lambda error: opened.faults.append(str(error)))
    yield opened
    opened.close()
    assert opened.faults == []


def ready(page) -> None:
    """Wait until all charts of a page are drawn."""
    page.wait_for_function(
        "() => [...document.querySelectorAll('[data-chart]')].every(one => one.firstChild)"
    )

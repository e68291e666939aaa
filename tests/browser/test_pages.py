"""The pages in Chromium: no errors, no violations of axe-core, no horizontal overflow, in both themes."""

from __future__ import annotations

import shutil
import subprocess
import sys

import h5py
import numpy as np
import pytest

from shardkeep import World
from shardkeep.hdf5 import WorkerFile
from shardkeep.tfrecord import Writer

playwright = pytest.importorskip("playwright.sync_api")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")

SERVE = (
    "import sys; from shardkeep.viewer import serve;"
    " serve(sys.argv[1:], started=lambda address: print(address, flush=True))"
)
FILE = "0/a-0.tfrecord"
PAGES = {
    "data": "0?view=data",
    "epoch": "0?view=epoch",
    "files": "0?view=files",
    "records": FILE,
    "record": f"{FILE}?record=1",
    "distributions": f"{FILE}?view=distributions",
    "damage": f"{FILE}?view=damage",
    "folder": "1",
    "run": "1/run",
    "hdf5": "1/results.h5",
    "table": "1/results.h5?at=/rows",
    "image": "1/results.h5?at=/images&show=image",
    "missing": "0/none",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    for number in range(2):
        with Writer(folder / f"a-{number}.tfrecord") as writer:
            for label in range(40):
                writer.write_example(
                    {"label": label % 10, "text": f"word-{label}", "x": [0.5] * (label % 3 + 1)}
                )
    data = bytearray((folder / "a-0.tfrecord").read_bytes())
    data[30] ^= 1
    (folder / "a-0.tfrecord").write_bytes(data)
    results = tmp_path_factory.mktemp("results")
    with h5py.File(results / "results.h5", "w") as file:
        file["rows"] = np.zeros(500, [("step", "i4"), ("loss", "f8")])
        file["images"] = np.arange(3 * 40 * 50, dtype=np.uint8).reshape(3, 40, 50)
    with WorkerFile(results / "run", World()) as out:
        out.append("loss", np.arange(5.0))
        out.commit(step=1)
    command = [sys.executable, "-c", SERVE, str(folder), str(results)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        yield server.stdout.readline().strip()
        server.kill()


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_in_both_themes_and_fits_the_screen(browser, address, name):
    page = browser.new_page(color_scheme="light", viewport={"width": 400, "height": 800})
    faults: list[str] = []
    page.on("console", lambda message: message.type == "error" and faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(address + PAGES[name], wait_until="networkidle")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        found = axe.Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
    for width in (400, 3840):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width
    page.close()
    assert [fault for fault in faults if name != "missing" or "404" not in fault] == []

"""The pages in Chromium: no errors, no violations of axe-core, no horizontal overflow, in both themes."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.browser.conftest import HOSTILE, ready

axe = pytest.importorskip("axe_playwright_python.sync_playwright")

FILE = "0/a-0.tfrecord"
PAGES = {
    "home": "",
    "data": "0?view=data",
    "epoch": "0?view=epoch",
    "files": "0?view=files",
    "records": FILE,
    "record": f"{FILE}?record=1",
    "distributions": f"{FILE}?view=distributions",
    "damage": f"{FILE}?view=damage&at=20",
    "folder": "1",
    "run": "1/run",
    "delivered": "1/trained?view=delivered",
    "hdf5": "1/results.h5",
    "table": "1/results.h5?at=/rows",
    "curve": "1/results.h5?at=/curve&show=plot",
    "image": "1/results.h5?at=/images&show=image",
    "scalars": "2",
    "missing": "0/none",
    "hostile names": "3?view=files",
    "hostile name": "3/" + quote(HOSTILE[-1]),
    "empty folder": "3/empty",
    "many values": "3/many.tfrecord?record=0",
    "empty file": "3/nothing.tfrecord",
    "damaged HDF5": "3/damaged.h5",
}
STATUS = {"missing": 404, "damaged HDF5": 422}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_accessible_in_both_themes_and_fits_the_screen(page, address, name):
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 400, "height": 800})
    answer = page.goto(address + PAGES[name])
    assert answer.status == STATUS.get(name, 200)
    page.faults = [fault for fault in page.faults if name not in STATUS or str(STATUS[name]) not in fault]
    ready(page)
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.emulate_media(color_scheme="dark")
    ready(page)
    found = axe.Axe().run(page, options={"runOnly": ["color-contrast"]})
    assert found.violations_count == 0, found.generate_report()
    for width in (400, 3840):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, width

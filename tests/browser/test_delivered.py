"""The epochs of a run in Chromium: from a lost record to its page, sliders, and receipts that appear."""

from __future__ import annotations

import pytest

from shardkeep import Loader, World
from shardkeep.hdf5 import WorkerFile
from tests.browser.conftest import playwright, served
from tests.unit.viewer.runs.run_makers import train, write_shards

expect = playwright.expect
MARK = "window.loadedOnce = true"
WAS_KEPT = "window.loadedOnce === true"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """The address and the folder of a page: "data", and "run", of which rank 1 was killed."""
    folder = tmp_path_factory.mktemp("delivered")
    train(folder / "run", write_shards(folder / "data"), [12, 8])
    with served(folder) as (address, _):
        yield address + "0/", folder


def test_a_lost_record_is_reached_from_the_data_set_by_keyboard_and_by_click(page, place):
    address, _ = place
    page.goto(address + "data?view=epoch")
    page.get_by_role("link", name="run", exact=True).press("Enter")
    lost = page.get_by_role("region", name="Lost").get_by_role("link").first
    name, _, record = lost.inner_text().partition(": ")
    lost.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(f"{name}, record {record.split('–')[0]}")
    page.go_back()
    page.locator("svg.band.lost a").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(", record ")


def test_a_slider_shows_the_fate_of_other_records_and_its_value(page, place):
    page.goto(place[0] + "run?view=delivered&kind=lost")
    page.evaluate(MARK)
    slider = page.get_by_role("slider", name="Place in the data set")
    slider.press("End")
    expect(page.get_by_role("heading", name="Records at 100 % of the data set")).to_be_visible()
    expect(page.get_by_role("status", name="Place in the data set")).to_have_text("100 %")
    assert slider.get_attribute("aria-valuetext") == "100 %"
    expect(slider).to_be_focused()
    page.wait_for_url("**place=1000**")
    assert page.evaluate(WAS_KEPT)


def test_receipts_appear_while_a_process_writes(page, place):
    address, folder = place
    paths = sorted(map(str, (folder / "data").glob("*.tfrecord")))
    loader = Loader(paths, batch_size=5, world=World(), epochs=None)
    batches = iter(loader)
    with WorkerFile(folder / "live", World()) as worker:
        page.goto(address + "live?view=delivered")
        page.evaluate(MARK)
        expect(page.locator("#delivered")).to_contain_text("has no receipts yet")
        next(batches)
        worker.append("loss", [0.5])
        worker.commit(step=1, receipt=loader.receipt())
        expect(page.locator("#delivered")).to_contain_text("Epoch 0: under way")
        expect(page.get_by_role("slider", name="Place in the data set")).to_be_visible()
        assert page.evaluate(WAS_KEPT)

"""Sliders, curves and the keyboard, in Chromium."""

from __future__ import annotations

import pytest

from tests.browser.conftest import playwright, ready

MARK = "window.loadedOnce = true"
WAS_KEPT = "window.loadedOnce === true"
expect = playwright.expect


def focused(page) -> str:
    return page.evaluate(
        "() => { const one = document.activeElement;"
        " return one.id || one.getAttribute('aria-label') || one.textContent.trim() }"
    )


def test_a_slider_changes_the_picture_and_the_address_without_a_load(page, address, browser):
    page.goto(address + "0?view=epoch&shuffle=global")
    page.evaluate(MARK)
    before = page.locator("svg.epoch").inner_html()
    page.get_by_role("slider", name="Ranks").focus()
    for key in ("ArrowRight", "ArrowRight", "Home", "End"):
        page.keyboard.press(key)
    expect(page.locator("#picture [role=status]")).to_contain_text("64 ranks")
    assert page.locator("svg.epoch").inner_html() != before
    assert focused(page) == "ranks"
    page.get_by_role("slider", name="Epoch", exact=True).press("ArrowRight")
    expect(page.locator("#picture [role=status]")).to_contain_text("epoch 1:")
    assert page.evaluate(WAS_KEPT)
    shown = page.locator("#picture").inner_text()
    page.wait_for_url("**ranks=64**epoch=1**")
    other = browser.new_page()
    other.goto(page.url)
    assert other.locator("#picture").inner_text() == shown
    other.close()


def test_a_slider_of_images_keeps_the_focus(page, address):
    page.goto(address + "1/results.h5?at=/images&show=image")
    page.evaluate(MARK)
    page.get_by_role("slider", name="Of 3").press("ArrowRight")
    expect(page.get_by_role("img", name="Values of images at index 1 ")).to_be_visible()
    page.wait_for_url("**first=1**")
    assert page.evaluate(WAS_KEPT)
    expect(page.locator("#slide")).to_be_focused()


def test_curves_of_runs_are_hidden_and_shown_by_keyboard(page, address):
    page.goto(address + "2")
    ready(page)
    picture = "document.querySelector('.chart canvas').toDataURL()"
    whole = page.evaluate(picture)
    button = page.get_by_role("button", name="second")
    expect(button).to_have_attribute("aria-pressed", "true")
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_function(f"before => {picture} !== before", arg=whole)
    canvas = page.locator(".chart canvas").element_handle()
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("one => !one.isConnected", arg=canvas)  # drawn again, in other colours
    expect(button).to_have_attribute("aria-pressed", "false")
    canvas = page.locator(".chart canvas").element_handle()
    page.emulate_media(color_scheme="light")
    page.wait_for_function("one => !one.isConnected", arg=canvas)
    button.press(" ")
    page.wait_for_function(f"before => {picture} === before", arg=whole)


@pytest.mark.parametrize(
    ("path", "link", "heading"),
    [
        ("", "/data", "data"),
        ("0?view=files", "a-1.tfrecord", "a-1.tfrecord"),
        ("0/a-1.tfrecord", "Distributions", "a-1.tfrecord"),
        ("1/results.h5", "images", "images"),
        ("1", "run", "run"),
    ],
)
def test_views_are_reached_by_tab_and_enter(page, address, path, link, heading):
    page.goto(address + path)
    seen = []
    while not (seen and seen[-1].endswith(link)):
        page.keyboard.press("Tab")
        seen.append(focused(page))
        assert len(seen) < 60, seen
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", seen
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(heading)


def test_the_skip_link_leads_past_the_navigation(page, address):
    page.goto(address + "0/a-1.tfrecord")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert focused(page) == "record"


def test_tab_passes_every_control_and_leaves_the_page(page, address):
    page.goto(address + "0?view=epoch")
    page.evaluate("document.body.insertAdjacentHTML('beforeend', '<button id=end>end</button>')")
    seen = []
    while not seen or seen[-1] != "end":
        page.keyboard.press("Tab")
        seen.append(focused(page))
        assert len(seen) < 100, seen
    for name in ("ranks", "batch", "shuffle", "shard_by", "remainder", "seed", "epoch", "place"):
        assert name in seen


def test_a_record_is_reached_and_found_by_keyboard(page, address):
    page.goto(address + "0/a-1.tfrecord")
    page.get_by_label("Record number").focus()
    page.keyboard.type("7")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("a-1.tfrecord, record 7")
    page.go_back()
    page.get_by_label("has the value").focus()
    page.keyboard.type("word-31")
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").last).to_contain_text("1 record found")
    expect(page.locator(".cards li")).to_contain_text("word-31")

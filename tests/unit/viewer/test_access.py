"""Refusal of other sites, other names and addresses without the token."""

from __future__ import annotations

import pytest


def test_the_page_asks_for_nothing_outside(page, tmp_path):
    (tmp_path / "a.txt").write_text("text")
    answer = page().get("0")
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "http:" not in answer.text.replace("http-equiv", "") and "https:" not in answer.text


@pytest.mark.parametrize("address", ["/", "/0", "/0123456789abcdeX/0", "/0123456789abcdef0/0", "//"])
def test_an_address_without_the_token_is_refused(page, address):
    answer = page().get(f"http://127.0.0.1:8000{address}")
    assert answer.status_code == 403
    assert "token" in answer.text


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "a" * 300]
)
def test_the_name_of_another_site_is_refused(page, host):
    assert page().get("0", headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["127.0.0.1:8000", "localhost:8000", "[::1]:8000", "LOCALHOST"])
def test_a_name_of_this_machine_is_accepted(page, host):
    assert page().get("0", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("mode", "target"), [("no-cors", "image"), ("cors", "empty"), ("navigate", "iframe")]
)
def test_a_request_of_another_site_is_refused(page, site, mode, target):
    headers = {"sec-fetch-site": site, "sec-fetch-mode": mode, "sec-fetch-dest": target}
    assert page().get("0", headers=headers).status_code == 403


def test_a_link_on_another_page_opens_it(page):
    headers = {"sec-fetch-site": "same-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert page().get("0", headers=headers).status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
def test_other_methods_than_reading_are_refused(page, method):
    assert page().request(method, "0").status_code == 405


def test_an_address_for_other_machines_accepts_the_names_of_this_one(page, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "node7")
    client = page(host="0.0.0.0")
    assert client.get("0", headers={"host": "node7:8000"}).status_code == 200
    assert client.get("0", headers={"host": "evil.example"}).status_code == 421

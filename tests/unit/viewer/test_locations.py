"""Addresses, and refusal of those that lead out of the roots."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import NotFoundError, UntrustedFileError
from shardkeep.viewer.locations import Roots


@pytest.mark.parametrize(
    "address",
    [
        b"0/../secret.txt",
        b"0/%2e%2e/secret.txt",
        b"0/..%2fsecret.txt",
        b"0/%2e%2e%2fsecret.txt",
        b"0/in/..%2f..%2fsecret.txt",
        b"0/./in",
        b"0//in",
        b"0/in%00.txt",
        b"0/%2fetc%2fpasswd",
        b"0/link",
        b"0/folder-link/secret.txt",
        b"0/in/../../secret.txt",
        b"0/in/%2e%2e/%2e%2e/secret.txt",
    ],
)
def test_an_address_that_leads_out_is_refused(tmp_path, address):
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (tmp_path / "secret.txt").write_text("secret")
    (root / "link").symlink_to(tmp_path / "secret.txt")
    (root / "folder-link").symlink_to(tmp_path)
    with pytest.raises(UntrustedFileError):
        Roots([str(root)], "/t").find(address)


@pytest.mark.parametrize(
    "address",
    [
        b"1",
        b"-1",
        b"00",
        b"9" * 5000,
        b"",
        b"x",
        b"0/none",
        "0/\u0663".encode(),
        b"\xd9\xa3",
        b"0/%252e%252e/secret.txt",
        b"0/..%255csecret.txt",
        b"0/..%5csecret.txt",
        b"0/%c0%ae%c0%ae/secret.txt",
        b"0/..;/secret.txt",
        b"0/C:%5csecret.txt",
    ],
)
def test_an_address_of_no_file_is_not_found(tmp_path, address):
    with pytest.raises(NotFoundError):
        Roots([str(tmp_path)], "/t").find(address)


def test_a_link_within_the_root_is_followed(tmp_path):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "link").symlink_to("a.txt")
    assert Roots([str(tmp_path)], "/t").find(b"0/link").path == str(tmp_path / "a.txt")


def test_a_listing_does_not_read_behind_a_link_to_elsewhere(page, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "secret.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (root / "link").symlink_to(tmp_path / "secret.png")
    answer = page(root).get("0?view=files")
    assert "a link to a file elsewhere" in answer.text and "PNG" not in answer.text


def test_a_root_is_missing(tmp_path):
    with pytest.raises(NotFoundError, match="none"):
        Roots([str(tmp_path / "none")], "/t")


@given(
    st.binary(min_size=1, max_size=20).filter(
        lambda name: not set(name) & {0, 47} and name not in (b".", b"..")
    )
)
def test_every_name_has_an_address_that_leads_back_to_it(name):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(os.path.realpath(folder), os.fsdecode(name))
        open(path, "wb").close()
        roots = Roots([folder], "/t")
        place = roots.locations()[0].child(os.fsdecode(name))
        assert roots.find(place.address().removeprefix("/t/").encode("ascii")).path == path
        assert place.name.isprintable()


@pytest.mark.parametrize(
    "name", ["<script>alert(1)</script>", "a\nb", "\udcff.bin", "\u202egnp.exe", "'\"&%3c#?"]
)
def test_a_hostile_file_name_is_escaped(page, tmp_path, name):
    (tmp_path / name.replace("/", "\u2215")).write_text("text")
    client = page()
    listing = client.get("0?view=files").text
    assert "<script>alert" not in listing and "\u202e" not in listing and "\udcff" not in listing
    href = listing.partition('<th scope="row"><a href="')[2].partition('"')[0].replace("&amp;", "&")
    assert client.get(f"http://127.0.0.1:8000{href}").status_code == 200

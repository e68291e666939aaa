"""The child process of HDF5 and event files for the tests of this folder."""

from __future__ import annotations

import html
import re
import struct

import pytest

from shardkeep.tfrecord import Writer
from shardkeep.viewer.hdf5 import processes


@pytest.fixture(scope="session", autouse=True)
def _kept_child():
    """Start the child before the first test: its imports take longer than most tests."""
    children = processes.children()
    children._idle.put(children._take())
    yield
    children.__exit__()


@pytest.fixture
def shown(page):
    """A function that returns status and text of a page, without its elements."""

    def show(address: str) -> tuple[int, str]:
        answer = page().get(address)
        return answer.status_code, " ".join(html.unescape(re.sub(r"<[^>]+>", " ", answer.text)).split())

    return show


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def event(tag: str, step: int, value: float) -> bytes:
    """Return an event with one scalar, as PyTorch writes it."""
    name = tag.encode()
    scalar = b"\x0a" + bytes([len(name)]) + name + b"\x15" + struct.pack("<f", value)
    summary = b"\x0a" + bytes([len(scalar)]) + scalar
    return (
        b"\x09"
        + struct.pack("<d", 1.7e9)
        + b"\x10"
        + _varint(step)
        + b"\x2a"
        + bytes([len(summary)])
        + summary
    )


@pytest.fixture
def write_events():
    """A function that writes an event file of (tag, step, value)."""

    def write(path, values) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with Writer(path) as writer:
            writer.write(b"\x09" + struct.pack("<d", 1.7e9) + b"\x1a\x0dbrain.Event:2")
            for one in values:
                writer.write(event(*one))

    return write

"""TFRecord files for the tests of their views."""

from __future__ import annotations

import pathlib
import struct
import zlib

from shardkeep.tfrecord import Writer
from tests.png_files import chunk

__all__ = ["PNG", "write_examples"]

PNG = (
    b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 2, 8, 0, 0, 0, 0))
    + chunk(b"IDAT", zlib.compress(b"\0\0\xff\0\xff\0"))
    + chunk(b"IEND", b"")
)


def write_examples(path: pathlib.Path, records: int) -> pathlib.Path:
    """Write Examples with an image, a label, a text and a ragged feature."""
    with Writer(path) as writer:
        for number in range(records):
            writer.write_example(
                {
                    "image": PNG,
                    "label": number % 10,
                    "text": f"word-{number}",
                    "weights": [number / 4] * (number % 3 + 1),
                }
            )
    return path

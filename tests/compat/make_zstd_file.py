"""Write records.tfrecord.zst: ``python make_zstd_file.py OUT``, with the package zstandard."""

import struct
import sys

import zstandard

from shardkeep._core import masked_crc32c


def frame(payload):
    length = struct.pack("<Q", len(payload))
    sums = [struct.pack("<I", masked_crc32c(part)) for part in (length, payload)]
    return b"".join([length, sums[0], payload, sums[1]])


content = b"".join(frame(bytes([i]) * (i * 37)) for i in range(60))
compress = zstandard.ZstdCompressor(level=9, write_checksum=True).compress
# Two frames, cut inside a record, with a skippable one between them.
with open(sys.argv[1], "wb") as out:
    out.write(compress(content[:20_000]) + b"\x50\x2a\x4d\x18\x04\0\0\0skip" + compress(content[20_000:]))

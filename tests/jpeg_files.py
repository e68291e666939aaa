"""JPEGs of random coefficients, coded by the specification (ITU-T T.81): kinds that few encoders write."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

__all__ = ["sequential_jpeg"]

# How many codes there are of each length, as most encoders have them: 125 codes are 16 bits long.
_AC_COUNTS = bytes([0, 2, 1, 3, 3, 2, 4, 3, 5, 5, 4, 4, 0, 0, 1, 125])
_DC_COUNTS = bytes([0, 0, 0, 12, *[0] * 12])
_END_OF_BLOCK, _SIXTEEN_ZEROS = 0x00, 0xF0


def sequential_jpeg(
    rng: np.random.Generator,
    width: int,
    height: int,
    sampling: Sequence[tuple[int, int]],
    *,
    restart_interval: int = 0,
) -> bytes:
    """Return a baseline JPEG of noise whose components have these sampling factors (across, down)."""
    symbols = [run << 4 | size for run in range(16) for size in range(1, 11)] + [
        _END_OF_BLOCK,
        _SIXTEEN_ZEROS,
    ]
    ac_symbols = bytes(rng.permutation(symbols).tolist())
    dc_symbols = bytes(rng.permutation(12).tolist())
    dc, ac = _codes(_DC_COUNTS, dc_symbols), _codes(_AC_COUNTS, ac_symbols)
    numbers = range(len(sampling))
    out = [
        b"\xff\xd8",
        _segment(0xDB, b"\0" + rng.integers(1, 5, 64, np.uint8).tobytes()),
        _segment(
            0xC0,
            struct.pack(">BHHB", 8, height, width, len(sampling))
            + b"".join(bytes([i + 1, h << 4 | v, 0]) for i, (h, v) in enumerate(sampling)),
        ),
        _segment(0xC4, b"\0" + _DC_COUNTS + dc_symbols),
        _segment(0xC4, b"\x10" + _AC_COUNTS + ac_symbols),
        _segment(0xDD, struct.pack(">H", restart_interval)),
        _segment(
            0xDA, bytes([len(sampling)]) + bytes(b for i in numbers for b in (i + 1, 0)) + bytes([0, 63, 0])
        ),
    ]
    if len(sampling) == 1:
        sampling = [(1, 1)]
    across, down = (max(factors) for factors in zip(*sampling, strict=True))
    mcus = -(-width // (8 * across)) * -(-height // (8 * down))
    bits: list[str] = []
    for mcu in range(mcus):
        if restart_interval and mcu and mcu % restart_interval == 0:
            out += [_stuffed(bits), bytes([0xFF, 0xD0 + (mcu // restart_interval - 1) % 8])]
            bits = []
        for h, v in sampling:
            for _ in range(h * v):
                bits += _block(rng, dc, ac)
    return b"".join([*out, _stuffed(bits), b"\xff\xd9"])


def _segment(marker: int, content: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def _codes(counts: bytes, symbols: bytes) -> dict[int, str]:
    codes, code, rest = {}, 0, iter(symbols)
    for length, count in enumerate(counts, 1):
        for _ in range(count):
            codes[next(rest)] = f"{code:0{length}b}"
            code += 1
        code <<= 1
    return codes


def _value(value: int, size: int) -> str:
    return f"{value if value > 0 else value + (1 << size) - 1:0{size}b}" if size else ""


def _block(rng: np.random.Generator, dc: dict[int, str], ac: dict[int, str]) -> list[str]:
    difference = int(rng.integers(-40, 41))
    size = abs(difference).bit_length()
    bits = [dc[size], _value(difference, size)]
    at, last = 0, int(rng.choice([0, 1, 5, 12, 40, 63]))
    while at < last:
        run = min(int(rng.geometric(0.4)) - 1 + 16 * int(rng.integers(20) == 0), last - at - 1)
        at += run + 1
        value = int(rng.choice([-1, 1])) * int(rng.integers(1, 1 << int(rng.integers(1, 8))))
        size = abs(value).bit_length()
        bits += [ac[_SIXTEEN_ZEROS]] * (run // 16) + [ac[run % 16 << 4 | size], _value(value, size)]
    return bits if at == 63 else [*bits, ac[_END_OF_BLOCK]]


def _stuffed(bits: list[str]) -> bytes:
    text = "".join(bits)
    text += "1" * (-len(text) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big").replace(b"\xff", b"\xff\0")

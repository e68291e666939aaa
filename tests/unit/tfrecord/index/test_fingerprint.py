from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from shardkeep.tfrecord import Writer
from shardkeep.tfrecord.index.fingerprint import SAMPLES, Fingerprint, frames_fit, header_of, sample_blocks
from shardkeep.tfrecord.index.index import frame_starts


def taken(path: Path, size_bytes: int | None = None) -> tuple[Fingerprint, list[tuple[int, bytes]]]:
    fd = os.open(path, os.O_RDONLY)
    try:
        return sample_blocks(fd, os.fstat(fd).st_size if size_bytes is None else size_bytes, 1)
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 8191, 8192, 8 * 4096 - 1, 8 * 4096, 10_000_001])
def test_blocks_reach_from_head_to_tail(size: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(os.urandom(size))
    fingerprint, blocks = taken(path)
    assert len(fingerprint.samples) == len(blocks) == min(SAMPLES, max(size // 4096, 1))
    assert blocks[0][0] == 0
    if size >= 8192:
        assert blocks[-1][0] + len(blocks[-1][1]) == size
    assert all(len(block) == min(4096, size) for _, block in blocks)
    places = [at for at, _ in blocks]
    assert places == sorted(set(places))


def test_a_change_in_any_sampled_block_shows(tmp_path: Path) -> None:
    path = tmp_path / "x"
    content = bytearray(os.urandom(200_000))
    path.write_bytes(content)
    before, blocks = taken(path)
    for at, block in blocks:
        for place in (at, at + len(block) - 1):
            content[place] ^= 1
            path.write_bytes(content)
            assert taken(path)[0] != before
            content[place] ^= 1


@pytest.mark.parametrize("size", [0, 10, 4095, 4097, 100_001])
def test_old_part_of_a_grown_file_has_the_same_fingerprint(size: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    content = os.urandom(size)
    path.write_bytes(content)
    before, _ = taken(path)
    path.write_bytes(content + os.urandom(5000))
    assert taken(path)[0] != before
    assert taken(path, size)[0] == before
    if size:
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])
        assert taken(path, size)[0] != before


def test_computed_header_equals_that_of_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with Writer(path) as w:
        w.write(b"x" * 300)
    assert header_of(316) == path.read_bytes()[:12]


@pytest.mark.parametrize("record_bytes", [0, 100, 5000, 300_000])
def test_frames_fit_only_their_own_offsets(record_bytes: int, tmp_path: Path) -> None:
    path = tmp_path / "x"
    with Writer(path) as w:
        for _ in range(max(100_000 // (record_bytes + 16), 2)):
            w.write(b"x" * record_bytes)
    (starts,) = frame_starts([path])
    _, blocks = taken(path)
    assert frames_fit(starts, blocks)
    assert not frames_fit(starts[[0, -1]], blocks)  # one frame over all
    wrong = starts.copy()
    wrong[1] += np.uint64(1)
    assert not frames_fit(wrong, blocks)


def test_frames_fit_an_empty_file() -> None:
    assert frames_fit(np.zeros(1, np.uint64), [(0, b"")])

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardkeep._core import masked_crc32c
from shardkeep.errors import FormatError, NotFoundError
from shardkeep.loader import Loader
from shardkeep.tfrecord.index.damaged import index_around_damage
from shardkeep.tfrecord.index.index import frame_starts
from shardkeep.world import World
from tests.unit.tfrecord.test_reader import frame

FRAMES = [frame(bytes([i]) * size) for i, size in enumerate([5, 0, 40, 7, 300, 1, 90])]
STARTS = [sum(map(len, FRAMES[:i])) for i in range(len(FRAMES) + 1)]


def flipped(data: bytes, *bits: int) -> bytes:
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def around(path: Path, data: bytes) -> tuple[list[int], tuple[int, ...]]:
    path.write_bytes(data)
    index = index_around_damage(str(path))
    return index.starts.tolist(), index.holes


def with_frame(number: int, damaged: bytes) -> bytes:
    return b"".join([*FRAMES[:number], damaged, *FRAMES[number + 1 :]])


def test_undamaged_file_has_the_same_index(tmp_path: Path) -> None:
    assert around(tmp_path / "x", b"".join(FRAMES)) == (STARTS, ())
    assert around(tmp_path / "x", b"") == ([0], ())
    assert around(tmp_path / "x", with_frame(4, flipped(FRAMES[4], 200))) == (STARTS, ())


@pytest.mark.parametrize("number", range(len(FRAMES)))
@pytest.mark.parametrize("bits", [(0,), (45,), (95,), (0, 1), (3, 40, 70)])
def test_damaged_headers_keep_the_numbers(number: int, bits: tuple[int, ...], tmp_path: Path) -> None:
    assert around(tmp_path / "x", with_frame(number, flipped(FRAMES[number], *bits))) == (STARTS, ())


def test_damaged_header_and_payload_are_one_hole(tmp_path: Path) -> None:
    one_flip_each = flipped(FRAMES[2], 3, 200)
    assert around(tmp_path / "x", with_frame(2, one_flip_each)) == (STARTS, ())
    assert around(tmp_path / "x", with_frame(2, flipped(FRAMES[2], 3, 4, 200))) == (STARTS, (2,))
    assert around(tmp_path / "x", with_frame(6, flipped(FRAMES[6], 3, 4, 200))) == (STARTS, (6,))


def test_hole_counts_as_one_record(tmp_path: Path) -> None:
    holes = [
        (with_frame(2, bytes(5000)), [*STARTS[:3], *[at + 5000 - len(FRAMES[2]) for at in STARTS[3:]]], 2),
        (with_frame(2, FRAMES[2] + b"\n"), [*STARTS[:4], *[at + 1 for at in STARTS[3:]]], 3),
        (b"".join(FRAMES)[:-5], [*STARTS[:-1], STARTS[-1] - 5], 6),
        (b"".join(FRAMES)[: STARTS[6] + 3], [*STARTS[:-1], STARTS[6] + 3], 6),
        (with_frame(4, FRAMES[4][:100]), [*STARTS[:5], *[at - 216 for at in STARTS[5:]]], 4),
    ]
    for data, starts, hole in holes:
        assert around(tmp_path / "x", data) == (starts, (hole,))


def test_neighbours_that_are_both_damaged_are_one_hole(tmp_path: Path) -> None:
    damaged = [flipped(FRAMES[3], 0, 1, 130), flipped(FRAMES[4], 0, 1, 130)]
    data = b"".join([*FRAMES[:3], *damaged, *FRAMES[5:]])
    assert around(tmp_path / "x", data) == ([*STARTS[:4], *STARTS[5:]], (3,))


@pytest.mark.parametrize("length", [2**40, 2**63 - 30, 2**63, 2**64 - 20, 2**64 - 1])
def test_a_length_beyond_any_file_with_a_flipped_bit(length: int, tmp_path: Path) -> None:
    claimed = length.to_bytes(8, "little")
    header = claimed + masked_crc32c(claimed).to_bytes(4, "little")
    found = around(tmp_path / "x", with_frame(2, flipped(header, 3) + b"rest"))
    assert found[1] == (2,)
    assert len(found[0]) == len(STARTS)


@pytest.mark.parametrize("length", [1000, 2**40, 2**63])
def test_a_whole_header_of_another_length_before_a_whole_payload(length: int, tmp_path: Path) -> None:
    claimed = length.to_bytes(8, "little")
    header = claimed + masked_crc32c(claimed).to_bytes(4, "little")
    assert around(tmp_path / "x", with_frame(2, header + FRAMES[2][12:])) == (STARTS, (2,))
    records = Loader(tmp_path / "x", batch_size=7, world=World(0, 1), on_corrupt="skip")
    assert next(iter(records))["valid"].tolist() == [True, True, False, True, True, True, True]


def test_index_of_a_damaged_file_is_not_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHARDKEEP_INDEX", "beside")
    big = frame(bytes(2 << 20))
    around(tmp_path / "x", b"?" + big[1:] + FRAMES[0])
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_other_kinds_of_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("<html>403</html>" + " " * 100)
    with pytest.raises(FormatError, match="HTML"):
        index_around_damage(str(tmp_path / "x"))
    with pytest.raises(NotFoundError):
        index_around_damage(str(tmp_path / "none"))


@given(
    st.lists(st.tuples(st.integers(0, STARTS[-1] - 1), st.integers(1, 255)), max_size=6),
    st.integers(0, STARTS[-1]),
)
@settings(max_examples=150, deadline=None)
def test_any_damage_leaves_an_index_of_the_whole_file(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: int
) -> None:
    data = bytearray(b"".join(FRAMES))
    for place, change in changes:
        data[place] ^= change
    del data[cut:]
    path = tmp_path_factory.mktemp("x") / "x"
    try:
        starts, holes = around(path, bytes(data))
    except FormatError:  # the first bytes happen to be those of another kind
        return
    assert starts[0] == 0
    assert starts[-1] == len(data)
    assert starts == sorted(set(starts))
    assert list(holes) == sorted(set(holes))
    assert all(0 <= hole < len(starts) - 1 for hole in holes)
    for number in set(range(len(starts) - 1)) - set(holes):
        assert (starts[number], starts[number + 1]) in set(pairwise(STARTS))
    if not holes and not changes:
        assert starts == frame_starts([path])[0].tolist()

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shardkeep.progress import Count, Parts, ticking


class Bar:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def __call__(self, done: int, total: int) -> None:
        self.seen.append((done, total))

    def describe(self, name: str) -> None:
        self.seen.append(name)


def test_parts_follow_each_other_with_their_names() -> None:
    bar = Bar()
    parts = Parts(bar, 1000, {"scan": 1, "copy": 3})
    parts.begin("scan")(5, 10)
    copy = parts.begin("copy")
    copy(1, 2)
    copy(2, 2)
    assert bar.seen == ["scan", (0, 1000), (125, 1000), "copy", (250, 1000), (625, 1000), (1000, 1000)]


def test_nothing_to_do_is_no_division_by_zero() -> None:
    bar = Bar()
    Parts(bar, 0, {"scan": 1}).begin("scan")(0, 0)
    assert bar.seen[-1] == (0, 0)


def test_no_progress_is_wanted() -> None:
    Parts(None, 10, {"scan": 1}).begin("scan")(1, 1)


def test_unknown_part() -> None:
    with pytest.raises(ValueError, match="copy"):
        Parts(None, 10, {"scan": 1}).begin("copy")


def test_the_total_can_be_that_of_the_first_report() -> None:
    bar = Bar()
    parts = Parts(bar, None, {"inspect": 1, "copy": 3})
    parts.begin("inspect")(0, 1000)
    parts.begin("copy")(1, 2)
    assert bar.seen == ["inspect", (0, 1000), "copy", (250, 1000), (625, 1000)]


def test_a_count_reports_each_thousandth_and_the_end() -> None:
    seen: list[tuple[int, int]] = []
    count = Count(lambda *done: seen.append(done), 10_000)
    for _ in range(10_000):
        count.add(1)
    assert len(seen) == 1001
    assert seen[-1] == (10_000, 10_000)
    count.add(5)
    assert seen[-1] == (10_000, 10_000)


@pytest.mark.parametrize("file_bytes", [0, 1 << 19, 3 << 20, 100 << 20])
def test_the_bytes_of_a_compressed_file_are_counted_as_its_records_are_read(file_bytes: int) -> None:
    ticks: list[int] = []
    records = [bytes(1 << 20)] * 16
    assert list(ticking(records, len, file_bytes, ticks.append)) == records
    assert sum(ticks) == file_bytes
    assert len(ticks) == max(1, min(5, -(-file_bytes >> 20)))


def test_the_whole_file_is_counted_after_an_error() -> None:
    def damaged() -> Iterator[bytes]:
        yield b"one"
        raise ValueError

    ticks: list[int] = []
    with pytest.raises(ValueError):
        list(ticking(damaged(), len, 1000, ticks.append))
    assert ticks == [1000]

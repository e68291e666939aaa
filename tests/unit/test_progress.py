from __future__ import annotations

import pytest

from shardkeep.progress import Parts


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

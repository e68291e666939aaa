"""Following of a file, with a clock that the tests move.

Covers `shardkeep.tfrecord.follow.live_frames`.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardkeep._core import masked_crc32c
from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    FormatError,
    NotFoundError,
    PlanError,
    TruncatedFileError,
)
from shardkeep.tfrecord import FileChange, Writer, follow
from shardkeep.tfrecord.follow import follow as follow_module
from shardkeep.tfrecord.follow import watch
from shardkeep.tfrecord.follow.watch import Watch
from tests.descriptors import open_descriptors
from tests.unit.tfrecord.test_reader import frame
from tests.waiting import PATIENCE_S

ONE, TWO, THREE = frame(b"one"), frame(b"two"), frame(b"three")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "live.tfrecord"


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    before = open_descriptors()
    yield
    assert not open_descriptors() - before


class Clock:
    """Clock of a follower: it advances only while the follower waits, and then runs the due actions."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._due: list[tuple[float, Callable[[], object]]] = []

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return time.time()

    def wait(self, watch: Watch, timeout_s: float) -> None:
        until_s = self.now_s + max(timeout_s, 1e-6)
        self._due.sort(key=lambda one: one[0])
        if self._due and self._due[0][0] <= until_s:
            self.now_s, act = self._due.pop(0)
            act()
            return
        assert until_s < float("inf"), "it would wait for ever"
        self.now_s = until_s

    def soon(self, act: Callable[[], object], after_s: float = 0.08) -> None:
        """Do something while the follower waits."""
        self._due.append((self.now_s + after_s, act))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(follow_module, "time", clock)
    monkeypatch.setattr(Watch, "wait", lambda watch, timeout_s: clock.wait(watch, timeout_s))
    return clock


@contextlib.contextmanager
def soon(act: Callable[[], object], after_s: float = 0.08) -> Iterator[None]:
    """Do something while the body waits."""
    thread = threading.Timer(after_s, act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def put(path: Path, data: bytes, offset_bytes: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset_bytes)
        file.write(data)


# -- what comes ------------------------------------------------------------------------------------


@pytest.mark.parametrize("poll_s", [None, 0.01])
def test_records_are_yielded_as_they_are_written(path: Path, poll_s: float | None) -> None:
    path.write_bytes(ONE)
    records = follow(path, idle_timeout_s=PATIENCE_S, poll_s=poll_s)
    assert next(records) == b"one"
    for name in (b"two", b"", b"x" * 300_000):
        with soon(lambda name=name: append(path, frame(name)), 0.05):
            assert next(records) == name
    records.close()


def test_idle_file_ends_the_iteration(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE + TWO)
    assert list(follow(path, idle_timeout_s=0.3)) == [b"one", b"two"]
    assert clock.now_s == pytest.approx(0.3, abs=0.01)


def test_idle_timeout_elapses_in_real_time(path: Path) -> None:
    path.write_bytes(ONE + TWO)
    start = time.monotonic()
    assert list(follow(path, idle_timeout_s=0.3)) == [b"one", b"two"]
    assert time.monotonic() - start >= 0.3


def test_timeout_of_zero_yields_the_present_records(path: Path) -> None:
    path.write_bytes(b"".join(frame(b"%d" % i) for i in range(50_000)))
    assert [int(record) for record in follow(path, idle_timeout_s=0)] == list(range(50_000))


@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, 65_000, 65_536 - 16, 65_537, 1_100_000]), max_size=6),
    cut=st.integers(0, 3_000_000),
)
def test_records_are_whole_across_block_boundaries(
    sizes: list[int], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("f") / "x"
    records = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    content = b"".join(map(frame, records))
    path.write_bytes(content[:cut])
    out = []
    it = follow(path, idle_timeout_s=0)
    with contextlib.suppress(TruncatedFileError):
        out += list(it)
    assert out == records[: len(out)]
    path.write_bytes(content)
    assert list(follow(path, idle_timeout_s=0)) == records


def test_partial_record_is_waited_for(path: Path) -> None:
    path.write_bytes(ONE)
    records = follow(path, idle_timeout_s=PATIENCE_S)
    assert next(records) == b"one"
    for at in range(len(TWO) - 1):
        append(path, TWO[at : at + 1])
    with soon(lambda: append(path, TWO[-1:])):
        assert next(records) == b"two"
    records.close()


def test_the_time_of_the_caller_is_not_idle_time(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE)
    records = follow(path, idle_timeout_s=0.2)
    assert next(records) == b"one"
    clock.now_s += 0.3
    clock.soon(lambda: append(path, TWO))
    assert list(records) == [b"two"]


def test_bytes_that_come_slowly_are_not_idle_time(path: Path, clock: Clock) -> None:
    path.write_bytes(b"")
    for number, byte in enumerate(ONE):
        clock.soon(lambda byte=byte: append(path, bytes([byte])), 0.15 * (number + 1))
    assert list(follow(path, idle_timeout_s=0.2)) == [b"one"]


def test_our_writer_flushes(path: Path, clock: Clock) -> None:
    with Writer(path, exists="append") as writer:
        writer.write(b"one")
        assert list(follow(path, idle_timeout_s=0)) == []
        writer.flush()
        records = follow(path, idle_timeout_s=0.1)
        assert next(records) == b"one"
        writer.write(b"two")
    assert list(records) == [b"two"]


# -- where it begins --------------------------------------------------------------------------------


def test_a_file_that_is_not_there_yet_is_waited_for(path: Path, clock: Clock) -> None:
    clock.soon(lambda: path.write_bytes(ONE))
    assert list(follow(path, idle_timeout_s=0.3)) == [b"one"]


def test_a_file_that_came_late_is_watched_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the check every second, only an event or polling reveals the second write.
    monkeypatch.setattr(watch, "_LONGEST_SILENCE_S", 2 * PATIENCE_S)
    records = follow(path, idle_timeout_s=PATIENCE_S)
    with soon(lambda: path.write_bytes(ONE)):
        assert next(records) == b"one"
    with soon(lambda: append(path, TWO)):
        assert next(records) == b"two"
    records.close()


def test_missing_folder_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "run" / "live.tfrecord"

    def make() -> None:
        path.parent.mkdir()
        path.write_bytes(ONE)

    clock.soon(make)
    assert list(follow(path, idle_timeout_s=0.7)) == [b"one"]


def test_file_that_never_appears_is_not_found(path: Path, clock: Clock) -> None:
    with pytest.raises(NotFoundError, match=r"live\.tfrecord: no such file") as caught:
        list(follow(path, idle_timeout_s=0.1))
    assert caught.value.path == str(path)


def test_from_the_end_skips_the_records_present_at_the_call(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE + TWO[:7])
    records = follow(path, idle_timeout_s=0.1, from_start=False)
    append(path, TWO[7:] + THREE)
    assert list(records) == [b"two", b"three"]


def test_from_the_end_of_a_missing_file_is_its_start(path: Path, clock: Clock) -> None:
    records = follow(path, idle_timeout_s=0.1, from_start=False)
    path.write_bytes(ONE)
    assert list(records) == [b"one"]
    with pytest.raises(NotFoundError, match="none appeared in 0 s"):
        list(follow(path / "below", idle_timeout_s=0, from_start=False))


def test_from_the_end_of_another_file_is_the_start_of_this_one(
    path: Path, tmp_path: Path, clock: Clock
) -> None:
    path.write_bytes(ONE)
    records = follow(path, idle_timeout_s=0.1, from_start=False)
    (tmp_path / "new").write_bytes(TWO + THREE)
    os.replace(tmp_path / "new", path)
    assert list(records) == [b"two", b"three"]


# -- not yet, or never ------------------------------------------------------------------------------


def test_torn_tail_raises_at_the_end(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE + TWO[:9])
    records = follow(path, idle_timeout_s=0.1)
    assert next(records) == b"one"
    with pytest.raises(TruncatedFileError, match="9 bytes into a record") as caught:
        next(records)
    assert (caught.value.record, caught.value.offset_bytes) == (1, len(ONE))


@pytest.mark.parametrize("name", ["header", "payload", "footer", "page"])
def test_a_hole_that_is_filled_is_waited_for(path: Path, name: str, clock: Clock) -> None:
    """Later bytes exist already, as on a network file system that shows pages out of order."""
    hole = frame(os.urandom(9000))
    a, b = {"header": (0, 12), "payload": (100, len(hole)), "footer": (len(hole) - 4, len(hole))}.get(
        name, (4096, 8192)
    )
    path.write_bytes(ONE + hole[:a] + bytes(b - a) + hole[b:] + THREE)
    records = follow(path, idle_timeout_s=2, grace_s=0.01)
    assert next(records) == b"one"
    clock.soon(lambda: put(path, hole[a:b], len(ONE) + a), 0.2)
    assert next(records) == hole[12:-4]
    assert next(records) == b"three"
    records.close()


def test_a_hole_before_later_bytes_is_damage_in_the_end(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE + bytes(5000) + THREE)
    records = follow(path, idle_timeout_s=0.2)
    assert next(records) == b"one"
    with pytest.raises(CorruptRecordError, match="NUL bytes") as caught:
        next(records)
    assert (caught.value.record, caught.value.offset_bytes) == (1, len(ONE))


def test_hole_raises_while_the_file_still_grows(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE + bytes(5000) + THREE)
    for number in range(100):
        clock.soon(lambda: append(path, THREE), 0.02 * number)
    with pytest.raises(CorruptRecordError, match="NUL bytes"):
        list(follow(path, idle_timeout_s=0.4, grace_s=0))
    assert 0.4 <= clock.now_s < 0.5


def test_a_preallocated_file_is_filled_from_the_front(path: Path, clock: Clock) -> None:
    path.write_bytes(bytes(1 << 20))
    records = follow(path, idle_timeout_s=0.5, grace_s=0)
    offset_bytes = 0
    for data in (ONE, TWO, THREE):
        clock.soon(lambda data=data, at=offset_bytes: put(path, data, at), 0.4)
        assert next(records) == data[12:-4]
        offset_bytes += len(data)
    with pytest.raises(TruncatedFileError, match="NUL bytes to the end"):
        next(records)


def test_a_wrong_checksum_is_damage_after_the_grace(path: Path, clock: Clock) -> None:
    bad = bytearray(frame(b"some payload"))
    bad[15] ^= 4
    path.write_bytes(ONE + bad + THREE)
    records = follow(path, idle_timeout_s=30, grace_s=0.3)
    assert next(records) == b"one"
    with pytest.raises(CorruptRecordError, match="12-byte payload") as caught:
        next(records)
    assert 0.29 <= clock.now_s < 0.5
    assert (caught.value.record, caught.value.offset_bytes) == (1, len(ONE))


def test_a_wrong_length_is_damage_after_the_grace(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE + b"\x05" + TWO[1:] + THREE)
    with pytest.raises(CorruptRecordError, match="the header is damaged"):
        list(follow(path, idle_timeout_s=30, grace_s=0.1))


def test_bytes_corrected_within_the_grace_time_are_accepted(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE + TWO[:-1] + b"?" + THREE)
    records = follow(path, idle_timeout_s=PATIENCE_S, grace_s=2)
    assert next(records) == b"one"
    clock.soon(lambda: put(path, TWO[-1:], len(ONE) + len(TWO) - 1), 1.9)
    assert [next(records) for _ in range(2)] == [b"two", b"three"]
    records.close()


def test_a_last_record_that_is_wrong_is_waited_for_until_idle(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE + TWO[:-1] + b"?")
    with pytest.raises(CorruptRecordError):
        list(follow(path, idle_timeout_s=0.5, grace_s=0.01))
    assert clock.now_s == pytest.approx(0.5, abs=0.01)


def test_a_claimed_length_allocates_nothing(path: Path) -> None:
    claim = (1 << 60).to_bytes(8, "little")
    path.write_bytes(ONE + claim + masked_crc32c(claim).to_bytes(4, "little") + b"x" * 100)
    with pytest.raises(TruncatedFileError):
        list(follow(path, idle_timeout_s=0))


# -- what others do to the file ---------------------------------------------------------------------


def replace(path: Path, data: bytes) -> None:
    new = path.with_suffix(".new")
    new.write_bytes(data)
    os.replace(new, path)


def recreate(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


def truncate(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def rewrite(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:  # never empty, which would be a truncation to who looks then
        file.write(data * 20)


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (replace, "was replaced by another file"),
        (truncate, "was truncated"),
        (rewrite, "was rewritten in place"),
    ],
)
def test_change_is_reported_after_the_last_record(path: Path, act: Callable[..., None], said: str) -> None:
    path.write_bytes(ONE)
    records = follow(path, idle_timeout_s=PATIENCE_S)
    assert next(records) == b"one"
    with soon(lambda: act(path, frame(b""))), pytest.raises(CorruptDataError, match=said) as caught:
        next(records)
    assert "after 1 record (19 bytes)" in str(caught.value)
    assert (caught.value.record, caught.value.offset_bytes) == (1, len(ONE))
    assert type(caught.value) is CorruptDataError


def test_deletion_is_reported(path: Path) -> None:
    path.write_bytes(ONE)
    records = follow(path, idle_timeout_s=PATIENCE_S)
    assert next(records) == b"one"
    with soon(path.unlink), pytest.raises(NotFoundError, match="was deleted after 1 record"):
        next(records)


def test_old_content_is_yielded_before_a_change_is_reported(path: Path) -> None:
    path.write_bytes(ONE)
    records = follow(path, idle_timeout_s=PATIENCE_S)
    assert next(records) == b"one"
    append(path, TWO + THREE[:5])
    replace(path, THREE)
    assert next(records) == b"two"
    with pytest.raises(CorruptDataError, match="5 bytes of an unfinished one after them"):
        next(records)


@pytest.mark.parametrize("act", [replace, recreate, truncate, rewrite])
@pytest.mark.parametrize("poll_s", [None, 0.02])
def test_follow_continues_with_the_file_of_that_name(
    path: Path, act: Callable[..., None], poll_s: float | None
) -> None:
    path.write_bytes(ONE)
    records = follow(path, idle_timeout_s=PATIENCE_S, poll_s=poll_s, on_change="follow")
    assert next(records) == b"one"
    with soon(lambda: act(path, frame(b""))):
        assert next(records) == b""
    records.close()


def test_function_receives_the_change(path: Path, clock: Clock) -> None:
    told: list[FileChange] = []
    path.write_bytes(ONE + TWO[:3])
    records = follow(path, idle_timeout_s=0.2, on_change=told.append)
    assert next(records) == b"one"
    replace(path, TWO)
    assert next(records) == b"two"
    path.unlink()
    assert list(records) == []
    assert [(c.kind, c.record, c.offset_bytes, c.unfinished_bytes) for c in told] == [
        ("replaced", 1, len(ONE), 3),
        ("deleted", 1, len(TWO), 0),
    ]
    assert abs(told[0].noticed_s - time.time()) < PATIENCE_S


def test_a_function_may_raise(path: Path) -> None:
    def refuse(change: FileChange) -> None:
        raise RuntimeError(change.kind)

    path.write_bytes(ONE)
    records = follow(path, on_change=refuse)
    next(records)
    path.unlink()
    with pytest.raises(RuntimeError, match="deleted"):
        next(records)


def test_removal_of_a_torn_tail_is_not_a_change(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE + TWO[:9])
    records = follow(path, idle_timeout_s=0.2)
    assert next(records) == b"one"

    def restart() -> None:
        with Writer(path, exists="append") as writer:
            writer.write(b"three")

    clock.soon(restart, 0.05)
    assert list(records) == [b"three"]


# -- other kinds, options, descriptors ---------------------------------------------------------------


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_a_compressed_file_is_refused_with_the_reason(path: Path, pack: Callable[[bytes], bytes]) -> None:
    path.write_bytes(pack(ONE + TWO))
    with pytest.raises(FormatError, match="compressed file cannot be followed"):
        list(follow(path))
    with pytest.raises(FormatError):
        follow(path, from_start=False)


def test_another_kind_of_file_is_named(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"<!DOCTYPE html><title>Sign in</title>")
    with pytest.raises(FormatError, match="HTML"):
        list(follow(path, grace_s=0.01))
    with pytest.raises(FormatError, match="folder"):
        list(follow(tmp_path))
    path.write_bytes(b"a note\n")  # shorter than a header
    with pytest.raises(FormatError, match="expected a TFRecord file, found plain text"):
        list(follow(path, idle_timeout_s=0))
    path.write_bytes(ONE[:7])
    with pytest.raises(TruncatedFileError, match="the file is idle"):
        list(follow(path, idle_timeout_s=0))


@pytest.mark.parametrize(
    "options", [{"on_change": "ignore"}, {"idle_timeout_s": -1}, {"poll_s": 0}, {"grace_s": float("nan")}]
)
def test_options_are_checked_at_the_call(path: Path, options: dict[str, object]) -> None:
    with pytest.raises(PlanError, match=next(iter(options))):
        follow(path, **options)  # type: ignore[arg-type]


def test_close_releases_the_descriptors(path: Path) -> None:
    before = open_descriptors()
    path.write_bytes(ONE)
    records = follow(path, idle_timeout_s=PATIENCE_S)
    next(records)
    with soon(lambda: append(path, TWO), 0.05):
        next(records)
    assert len(open_descriptors()) == len(before) + 2
    records.close()
    assert not open_descriptors() - before


def test_two_followers_do_not_disturb_each_other(path: Path, clock: Clock) -> None:
    path.write_bytes(ONE)
    a, b = follow(path, idle_timeout_s=0.2), follow(path, idle_timeout_s=0.2)
    assert next(a) == next(b) == b"one"
    append(path, TWO)
    assert list(b) == list(a) == [b"two"]

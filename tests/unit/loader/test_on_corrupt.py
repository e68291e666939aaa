"""Damaged records: skipped or repaired, named in the receipt, and exactly-once delivery of the others.

Covers `shardkeep.loader.batches`.
"""

from __future__ import annotations

import io
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PillowImage

from shardkeep import plan
from shardkeep.errors import CorruptRecordError, FormatError, SchemaError, TruncatedFileError
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Image, VarLen, Writer, read_columns
from shardkeep.tfrecord.index.index import frame_starts
from shardkeep.world import World
from tests.messages import OTHER_MESSAGES

# Offsets of the frames of a file before it was damaged.
WHOLE: dict[str, Any] = {}
ALL = {"x": FixedLen(), "s": FixedLen((), "bytes"), "v": VarLen("int64")}


def flip(path: str, record: int, *bytes_: int, bit: int = 3) -> tuple[int, int]:
    """Flip a bit in some bytes of a frame; return the byte range of the frame."""
    data = bytearray(Path(path).read_bytes())
    if path not in WHOLE:
        (WHOLE[path],) = frame_starts([path])
    starts = WHOLE[path]
    start, stop = int(starts[record]), int(starts[record + 1])
    for byte in bytes_:
        data[(start if byte >= 0 else stop) + byte] ^= 1 << bit
    Path(path).write_bytes(data)
    return start, stop


def delivered(loader: Loader) -> list[int]:
    rows = []
    for batch in loader:
        keep = batch["valid"] if "valid" in batch else slice(None)
        rows += batch["x"][keep].tolist()
    return rows


def audited(*loaders: Loader) -> plan.AuditReport:
    return plan.audit(json.loads(json.dumps([loader.receipt() for loader in loaders])))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("shuffle", [False, "global", "blocks"])
def test_skipped_rows_are_masked(shards: Any, threads: int, shuffle: Any) -> None:
    paths = shards([10, 0, 10])
    where = [flip(paths[0], 3, 20), flip(paths[2], 9, -1)]
    loader = Loader(paths, ALL, 4, World(), shuffle, threads=threads, on_corrupt="skip", with_ids=True)
    rows, invalid = [], 0
    for batch in loader:
        assert len(batch["x"]) == len(batch["s"]) == len(batch["v"]) == 4
        damaged = ~batch["valid"]
        invalid += int(damaged.sum())
        assert not batch["x"][damaged].any()
        assert all(one == b"" for one in batch["s"][damaged])
        assert (batch["index"][damaged] == -1).all()
        assert (batch["shard"][damaged] == -1).all()
        for row in np.flatnonzero(batch["valid"]):
            x = int(batch["x"][row])
            assert batch["v"][row].tolist() == (list(range(x % 3)) or [0])
            assert batch["shard"][row] * 5 + batch["index"][row] == x  # shards 0 and 2
            rows.append(x)
    assert sorted(rows) == [x for x in range(20) if x not in (3, 19)]
    assert invalid == 2
    report = audited(loader)
    assert not report.ok
    (epoch,) = report.epochs
    assert (epoch.delivered, epoch.lost.records, epoch.repeated.records) == (18, 0, 0)
    names = [(one.name.shard, one.name.index, one.start_bytes, one.stop_bytes) for one in epoch.skipped]
    assert names == [("000.tfrecord", 3, *where[0]), ("002.tfrecord", 9, *where[1])]


@pytest.mark.parametrize("remainder", ["short", "drop"])
def test_skipped_rows_are_left_out_and_the_steps_stay_equal(shards: Any, remainder: Any) -> None:
    paths = shards([25])
    for record in (0, 1, 2, 3, 9):
        flip(paths[0], record, 13)
    loaders = [
        Loader(paths, ALL, 4, World(rank, 2), remainder=remainder, on_corrupt="skip", with_ids=True)
        for rank in range(2)
    ]
    batches = [list(loader) for loader in loaders]
    assert len(batches[0]) == len(batches[1]) == (4 if remainder == "short" else 3)
    assert [len(batch["x"]) for batch in batches[0]][:3] == [0, 3, 4]
    for batch in batches[0] + batches[1]:
        assert batch["index"].tolist() == batch["x"].tolist()
        assert [row.tolist() for row in batch["v"]] == [
            list(range(x % 3)) or [0] for x in batch["x"].tolist()
        ]
    last = 25 if remainder == "short" else 24
    got = sorted(x for rank in batches for batch in rank for x in batch["x"].tolist())
    assert got == [4, 5, 6, 7, 8, *range(10, last)]
    assert len(audited(*loaders).epochs[0].skipped) == 5


def test_damaged_raw_records_are_skipped(shards: Any) -> None:
    paths = shards([5])
    whole = [bytes(record) for record in next(iter(Loader(paths, batch_size=5, world=World())))["record"]]
    flip(paths[0], 2, 20)
    (batch,) = Loader(paths, batch_size=6, world=World(), on_corrupt="skip")
    assert list(batch["record"]) == [*whole[:2], b"", *whole[3:], b""]
    assert batch["valid"].tolist() == [True, True, False, True, True, False]
    (batch,) = Loader(paths, batch_size=6, world=World(), on_corrupt="skip", remainder="short")
    assert list(batch["record"]) == [*whole[:2], *whole[3:]]
    (batch,) = Loader(paths, batch_size=6, world=World(), on_corrupt="repair")
    assert list(batch["record"]) == [*whole, b""]


@pytest.mark.parametrize("byte", [0, 7, 8, 11, 12, 20, -1, -4])
def test_single_flipped_bit_is_repaired_anywhere(shards: Any, byte: int) -> None:
    paths = shards([10, 10])
    where = flip(paths[1], 4, byte)
    loader = Loader(paths, ALL, 3, World(), "global", on_corrupt="repair")
    assert sorted(delivered(loader)) == list(range(20))
    report = audited(loader)
    assert report.ok
    (one,) = report.epochs[0].repaired
    assert (one.name.shard, one.name.index, one.start_bytes, one.stop_bytes) == ("001.tfrecord", 4, *where)
    # The next epoch reads it again.
    assert sorted(delivered(loader)) == list(range(20))
    assert [len(epoch.repaired) for epoch in audited(loader).epochs] == [1, 1]
    with pytest.raises(CorruptRecordError, match="record 4"):
        delivered(Loader(paths, ALL, 3, World()))


@pytest.mark.parametrize("damage", [(14, 15), (0, 1, 14)])
def test_irreparable_damage_is_an_error_with_offset(shards: Any, damage: tuple[int, ...]) -> None:
    paths = shards([10])
    start, _ = flip(paths[0], 5, *damage)
    with pytest.raises(CorruptRecordError, match="more than a") as caught:
        delivered(Loader(paths, ALL, 2, World(), on_corrupt="repair"))
    assert (caught.value.path, caught.value.record, caught.value.offset_bytes) == (paths[0], 5, start)


def test_damaged_header_in_the_middle_of_a_file(shards: Any) -> None:
    paths = shards([10, 10])
    state = Loader(paths, ALL, 4, World()).state_dict()
    flip(
        paths[0], 4, 0, 1, 2
    )  # more than a flip; the next record and the checksum of the payload determine the length
    with pytest.raises(CorruptRecordError):
        Loader(paths, ALL, 4, World())
    repaired = Loader(paths, ALL, 4, World(), on_corrupt="repair")
    repaired.load_state_dict(state)  # the same records, the same data set
    assert delivered(repaired) == list(range(20))
    skipped = Loader(paths, ALL, 4, World(), on_corrupt="skip")
    skipped.load_state_dict(repaired.state_dict())
    assert delivered(skipped) == [x for x in range(20) if x != 4]
    again = pickle.loads(pickle.dumps(skipped))
    assert delivered(again) == [x for x in range(20) if x != 4]


def test_truncated_file_and_hole(shards: Any) -> None:
    paths = shards([10, 10])
    data = Path(paths[0]).read_bytes()
    Path(paths[0]).write_bytes(data[:-7])
    with pytest.raises(TruncatedFileError):
        Loader(paths, ALL, 4, World())
    with pytest.raises(CorruptRecordError, match="without a recognisable record") as caught:
        Loader(paths, ALL, 4, World(), on_corrupt="repair")
    assert caught.value.record == 9
    loader = Loader(paths, ALL, 4, World(), "global", on_corrupt="skip")
    assert sorted(delivered(loader)) == [x for x in range(20) if x != 9]
    (one,) = audited(loader).epochs[0].skipped
    assert one.stop_bytes == len(data) - 7


def test_malformed_example_is_damage_and_missing_feature_is_not(tmp_path: Path) -> None:
    with Writer(tmp_path / "x") as w:
        w.write_example({"x": 1})
        w.write(b"\xff\xff")
        w.write_example({"x": 3})
    features = {"x": FixedLen()}
    assert delivered(Loader(tmp_path / "x", features, 2, World(), on_corrupt="skip")) == [1, 3]
    with pytest.raises(CorruptRecordError, match="not a tf"):
        delivered(Loader(tmp_path / "x", features, 2, World(), on_corrupt="repair"))
    with pytest.raises(SchemaError, match="y"):
        delivered(Loader(tmp_path / "x", {"y": FixedLen()}, 2, World(), on_corrupt="skip"))


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("name", OTHER_MESSAGES)
def test_another_message_is_refused_and_not_skipped(
    tmp_path: Path, name: str, compression: str | None
) -> None:
    with Writer(tmp_path / "x", compression=compression) as w:
        w.write_example({"id": 1})
        w.write(OTHER_MESSAGES[name])
    for feature in (FixedLen(), FixedLen(default=7), VarLen("int64")):
        with pytest.raises(FormatError, match=f"x: record 1.* it is a {name}; "):
            read_columns(tmp_path / "x", {"id": feature})
        if compression is None:
            with pytest.raises(FormatError, match=f"x: record 1.* it is a {name}; "):
                next(iter(Loader(tmp_path / "x", {"id": feature}, 2, World(), on_corrupt="skip")))
            (batch,) = Loader(tmp_path / "x", None, 2, World())
            assert batch["record"][1] == OTHER_MESSAGES[name]


def test_other_kinds_of_files_are_refused_in_any_case(shards: Any, tmp_path: Path) -> None:
    page = tmp_path / "page.tfrecord"
    page.write_text("<html>403</html>" + " " * 100)
    for mode in ("skip", "repair"):
        with pytest.raises(FormatError, match="HTML"):
            Loader([*shards([3]), page], ALL, 2, World(), on_corrupt=mode)  # type: ignore[arg-type]


def test_batch_of_damaged_images_has_the_shape_of_the_others(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    png = io.BytesIO()
    PillowImage.fromarray(pixels).save(png, "PNG")
    path = str(tmp_path / "x")
    with Writer(path) as w:
        for i in range(6):
            w.write_example({"i": png.getvalue()[: 40 if i == 3 else None]})
    for record in (0, 1, 2):
        flip(path, record, 40)
    features = {"i": Image(3, "uint8")}
    masked = list(Loader(path, features, 2, World(), on_corrupt="skip"))
    assert [batch["i"].shape for batch in masked] == [(2, 7, 5, 3)] * 3
    assert [batch["valid"].tolist() for batch in masked] == [[False] * 2, [False] * 2, [True] * 2]
    assert not masked[1]["i"].any()
    np.testing.assert_array_equal(masked[2]["i"][1], pixels)
    short = list(Loader(path, features, 2, World(), on_corrupt="skip", remainder="short"))
    assert [batch["i"].shape for batch in short] == [(0, 7, 5, 3), (0, 7, 5, 3), (2, 7, 5, 3)]
    # With more ranks than records, the sample record of a batch of padding may be damaged as well.
    for rank in range(8):
        (batch,) = Loader(path, features, 1, World(rank, 8), on_corrupt="skip")
        assert batch["i"].shape == (1, 7, 5, 3)


@pytest.mark.parametrize("threads", [1, 4])
def test_undecodable_first_image_does_not_set_the_shape(tmp_path: Path, threads: int) -> None:
    def png(side: int) -> bytes:
        out = io.BytesIO()
        PillowImage.fromarray(np.full((side, side, 3), side, np.uint8)).save(out, "PNG")
        return out.getvalue()

    path = tmp_path / "x"
    with Writer(path) as w:
        for _ in range(20):
            w.write_example({"i": png(90)[:60]})
        for _ in range(20):
            w.write_example({"i": png(7)})
    features = {"i": Image(3, "uint8")}
    (batch,) = Loader(path, features, 40, World(), on_corrupt="skip", threads=threads)
    assert batch["valid"].tolist() == [False] * 20 + [True] * 20
    assert batch["i"].shape == (40, 7, 7, 3)
    assert (batch["i"][20:] == 7).all()


def test_damage_is_the_same_for_any_number_of_threads_and_after_a_resume(shards: Any) -> None:
    paths = shards([40, 40])
    for record in range(0, 40, 7):
        flip(paths[1], record, 20)
    loaders = [Loader(paths, ALL, 8, World(), "global", on_corrupt="skip", threads=n) for n in (1, 8)]
    rows = [delivered(loader) for loader in loaders]
    assert rows[0] == rows[1]
    receipts = [loader.receipt() for loader in loaders]
    assert receipts[0]["skipped"] == receipts[1]["skipped"]
    assert len(receipts[0]["skipped"]) == 6
    first = Loader(paths, ALL, 8, World(), "global", on_corrupt="skip")
    batches = iter(first)
    taken = [x for _ in range(4) for batch in [next(batches)] for x in batch["x"][batch["valid"]].tolist()]
    second = [Loader(paths, ALL, 5, World(rank, 3), "global", on_corrupt="skip") for rank in range(3)]
    for loader in second:
        loader.load_state_dict(first.state_dict())
        taken += delivered(loader)
    assert sorted(taken) == sorted(rows[0])
    (epoch,) = audited(first, *second).epochs
    assert (epoch.lost.records, epoch.repeated.records, len(epoch.skipped)) == (0, 0, 6)


@given(
    st.sets(st.integers(0, 29), max_size=12),
    st.integers(1, 4),
    st.integers(1, 7),
    st.sampled_from(["mask", "short"]),
    st.sampled_from([False, "global", "blocks"]),
)
@settings(max_examples=40, deadline=None)
def test_every_record_is_delivered_once_or_named(
    tmp_path_factory: pytest.TempPathFactory,
    damaged: set[int],
    size: int,
    batch: int,
    remainder: Any,
    shuffle: Any,
) -> None:
    path = str(tmp_path_factory.mktemp("x") / "x.tfrecord")
    with Writer(path) as w:
        for i in range(30):
            w.write_example({"x": i})
    for record in damaged:
        flip(path, record, 5 if record % 5 == 0 else 14)
    features = {"x": FixedLen()}
    for mode in ("skip", "repair"):
        loaders = [
            Loader(path, features, batch, World(r, size), shuffle, remainder=remainder, on_corrupt=mode)  # type: ignore[arg-type]
            for r in range(size)
        ]
        rows = sorted(x for loader in loaders for x in delivered(loader))
        (epoch,) = audited(*loaders).epochs
        named = {one.name.index for one in (epoch.skipped if mode == "skip" else epoch.repaired)}
        assert named == damaged
        assert rows == [x for x in range(30) if mode == "repair" or x not in damaged]
        assert epoch.ok is (mode == "repair" or not damaged)


def test_damage_with_shard_by_files(shards: Any) -> None:
    paths = shards([10, 4, 7, 9])
    flip(paths[2], 3, 20)
    loaders = [
        Loader(paths, ALL, 3, World(rank, 2), shard_by="files", on_corrupt="skip", with_ids=True)
        for rank in range(2)
    ]
    assert sorted(x for loader in loaders for x in delivered(loader)) == [x for x in range(30) if x != 17]
    (one,) = audited(*loaders).epochs[0].skipped
    assert (one.name.shard, one.name.index) == ("002.tfrecord", 3)


@pytest.mark.parametrize("mode", ["skip", "repair"])
def test_damage_in_mixtures(shards: Any, mode: Any) -> None:
    whole, damaged = shards([6, 6]), shards([5, 20])
    flip(damaged[1], 8, 20)
    Path(damaged[0]).write_bytes(Path(damaged[0]).read_bytes() + (b"" if mode == "repair" else b"\n"))
    options: Any = {"batch_size": 4, "world": World(), "on_corrupt": mode, "with_ids": True}
    mixed = Loader.mix([(Loader(whole, ALL, **options), 1), (Loader(damaged, ALL, **options), 2)])
    rows = [
        (int(source), int(x))
        for batch in mixed
        for source, x in zip(
            batch["source"][batch["valid"]], batch["x"][batch["valid"]].tolist(), strict=True
        )
    ]
    gone = {(1, 13)} if mode == "skip" else set()
    assert set(rows) == {*((0, x) for x in range(12)), *((1, x) for x in range(25))} - gone
    assert len(rows) == len(set(rows))
    (epoch,) = audited(mixed).epochs
    if mode == "skip":
        assert [str(one.name) for one in epoch.skipped] == [
            "1:000.tfrecord record 5",
            "1:001.tfrecord record 8",
        ]
    else:
        assert epoch.ok
        assert [str(one.name) for one in epoch.repaired] == ["1:001.tfrecord record 8"]

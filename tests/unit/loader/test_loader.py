"""Batches, states, receipts and errors of a loader.

Covers `shardkeep.loader.arguments`, `shardkeep.loader.dataset`, `shardkeep.loader.iterator` and
`shardkeep.loader.state`.
"""

from __future__ import annotations

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image as PillowImage

from shardkeep.errors import (
    CorruptRecordError,
    FormatError,
    NotFoundError,
    PlanError,
    SchemaError,
    ShardkeepError,
    TruncatedFileError,
)
from shardkeep.loader import Loader
from shardkeep.tfrecord import FixedLen, Image, Ragged, VarLen, Writer, build_index
from shardkeep.world import World
from tests.descriptors import open_descriptors
from tests.waiting import eventually

ALL = {"x": FixedLen(), "s": FixedLen((), "bytes"), "v": VarLen("int64")}


def test_batch_has_a_column_for_each_feature(shards: Any) -> None:
    (batch, *_) = Loader(shards([5]), ALL, 8, World(), with_ids=True)
    assert batch["x"].tolist() == [0, 1, 2, 3, 4, 0, 0, 0]
    assert batch["valid"].tolist() == [True] * 5 + [False] * 3
    assert batch["s"].tolist() == [b"", b"s", b"ss", b"sss", b"ssss", b"", b"", b""]
    assert isinstance(batch["v"], Ragged)
    assert [row.tolist() for row in batch["v"]] == [[0], [0], [0, 1], [0], [0], [], [], []]
    assert batch["shard"].tolist() == [0] * 5 + [-1] * 3
    assert batch["index"].tolist() == [0, 1, 2, 3, 4, -1, -1, -1]


def test_raw_records_are_a_ragged_column(shards: Any) -> None:
    paths = shards([3])
    from shardkeep.tfrecord import Reader

    (batch,) = Loader(paths, batch_size=4, world=World())
    assert [batch["record"][i] for i in range(4)] == [*Reader(paths[0]), b""]
    assert batch["record"].values.dtype == np.uint8


@pytest.mark.parametrize("size_bytes", [0, 60, 4080, 4081, 30_000])
@pytest.mark.parametrize("shuffle", [False, "global"])
def test_raw_records_of_any_size(size_bytes: int, shuffle: Any, tmp_path: Path) -> None:
    # Small ones are read with their frames and copied, large ones are read to their places.
    written = [bytes([i]) * (size_bytes + i % 3) for i in range(100)]
    paths = [tmp_path / "a", tmp_path / "b"]
    for path, records in zip(paths, (written[:37], written[37:]), strict=True):
        with Writer(path) as w:
            for record in records:
                w.write(record)
    for remainder in ("mask", "short"):
        loader = Loader(
            paths, batch_size=16, world=World(), shuffle=shuffle, remainder=remainder, with_ids=True
        )
        found = {}
        for batch in loader:
            for shard, index, record in zip(batch["shard"], batch["index"], batch["record"], strict=True):
                if shard >= 0:
                    found[int(shard) * 37 + int(index)] = record
        assert found == dict(enumerate(written))
    # A damaged one is left out, and its neighbours are not moved.
    data = bytearray(paths[0].read_bytes())
    data[16 + len(written[0]) + 12] ^= 1
    paths[0].write_bytes(data)
    loader = Loader(paths, batch_size=100, world=World(), on_corrupt="skip", remainder="short")
    (batch,) = loader
    assert list(batch["record"]) == [written[0], *written[2:]]


def test_arrays_are_not_reused(shards: Any) -> None:
    batches = list(Loader(shards([40]), {"x": FixedLen()}, 4, World(), prefetch=1))
    for i, batch in enumerate(batches):
        assert batch["x"].flags.writeable
        assert batch["x"].tolist() == list(range(i * 4, i * 4 + 4))


def test_images_and_a_batch_of_padding_only(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (7, 5, 3), dtype=np.uint8)
    png = io.BytesIO()
    PillowImage.fromarray(pixels).save(png, "PNG")
    with Writer(tmp_path / "x") as w:
        w.write_example({"image_raw": png.getvalue(), "v": [1, 2]})
    features = {"image_raw": Image(3, "uint8"), "v": VarLen("int64")}
    features["s"] = FixedLen((2,), "bytes", default="d")
    batches = [next(iter(Loader(str(tmp_path / "x"), features, 2, World(rank, 2)))) for rank in range(2)]
    full = next(batch for batch in batches if batch["valid"].any())
    empty = next(batch for batch in batches if not batch["valid"].any())
    np.testing.assert_array_equal(full["image_raw"][0], pixels)
    assert full["s"].tolist() == [[b"d", b"d"], [b"", b""]]
    for name in features:
        if name != "v":
            assert empty[name].shape == full[name].shape
            assert empty[name].dtype == full[name].dtype
            assert not empty[name].any()
    assert [len(row) for row in empty["v"]] == [0, 0]


def test_float_images_are_scaled(tmp_path: Path) -> None:
    png = io.BytesIO()
    PillowImage.fromarray(np.array([[0, 51, 255]], np.uint8)).save(png, "PNG")
    with Writer(tmp_path / "x") as w:
        w.write_example({"i": png.getvalue()})
    (batch,) = Loader(tmp_path / "x", {"i": Image(1)}, 1, World())
    assert batch["i"].dtype == np.float32
    np.testing.assert_allclose(batch["i"].ravel(), [0, 0.2, 1], rtol=1e-6)


def test_state_is_small_json_and_the_same_on_every_rank(shards: Any) -> None:
    paths = shards([30, 30])
    states = []
    for rank in range(3):
        loader = Loader(paths, ALL, 4, World(rank, 3), "global")
        batches = iter(loader)
        next(batches), next(batches)
        states.append(json.dumps(loader.state_dict()))
        assert loader.position == 24
    assert len(set(states)) == 1
    assert len(states[0]) < 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seed": 1}, "it has seed=0, and the loader has 1"),
        ({"shuffle": "blocks"}, "it has shuffle="),
        ({"paths": 1}, "another data set: it had 2 shards, 7 records, this one has 1 shards, 3 records"),
        ({"paths": -1}, "same shards in another order"),
        ({"shard_by": "files", "shuffle": "blocks"}, "it has shard_by='records', and the loader has 'files'"),
    ],
)
def test_state_with_other_settings_is_refused(change: dict[str, Any], message: str, shards: Any) -> None:
    paths = shards([3, 4])
    state = Loader(paths, ALL, 4, World(), "global").state_dict()
    given = {"shuffle": "global", "seed": 0, **change}
    which = given.pop("paths", None)
    other = {None: paths, 1: paths[:1], -1: paths[::-1]}[which]
    with pytest.raises(PlanError, match=message):
        Loader(other, ALL, 4, World(), **given).load_state_dict(state)


def test_a_state_of_rewritten_shards_is_refused(shards: Any) -> None:
    paths = shards([3, 4])
    state = Loader(paths, ALL, 4, World()).state_dict()
    os.rename(paths[1], paths[1] + "x")
    with pytest.raises(PlanError, match="renamed, or rewritten"):
        Loader([paths[0], paths[1] + "x"], ALL, 4, World()).load_state_dict(state)


def test_malformed_state_is_refused(shards: Any) -> None:
    loader = Loader(shards([3]), ALL, 4, World())
    good = loader.state_dict()
    wrong = [{"version": 99}, {"position": 4}, {"epoch": -1}, {"epoch": "0"}]
    for bad in (None, {}, *({**good, **one} for one in wrong)):
        with pytest.raises(PlanError):
            loader.load_state_dict(bad)  # type: ignore[arg-type]
    loader.load_state_dict(json.loads(json.dumps(good)))


def test_state_fits_shards_at_other_paths(shards: Any, tmp_path: Path) -> None:
    paths = shards([3, 4])
    state = Loader(paths, ALL, 4, World()).state_dict()
    moved = []
    for path in paths:
        moved.append(tmp_path / os.path.basename(path))
        moved[-1].write_bytes(Path(path).read_bytes())
    Loader(moved, ALL, 4, World()).load_state_dict(state)
    Loader(str(tmp_path / "*.tfrecord"), ALL, 4, World()).load_state_dict(state)


def test_invalid_arguments_are_errors_of_one_line(shards: Any, tmp_path: Path) -> None:
    paths = shards([3])
    cases: list[tuple[type[ShardkeepError], str, dict[str, Any]]] = [
        (NotFoundError, "no file matches", {"paths": str(tmp_path / "*.none")}),
        (NotFoundError, "no such file", {"paths": str(tmp_path / "none")}),
        (NotFoundError, "empty", {"paths": []}),
        (PlanError, "named twice", {"paths": paths * 2}),
        (PlanError, "batch_size", {"batch_size": 0}),
        (PlanError, "shuffle", {"shuffle": "shuffled"}),
        (PlanError, "remainder", {"remainder": "pad"}),
        (PlanError, "shard_by", {"shard_by": "bytes"}),
        (PlanError, "on_corrupt", {"on_corrupt": "ignore"}),
        (PlanError, "prefetch", {"prefetch": 0}),
        (PlanError, "seed", {"seed": -1}),
        (PlanError, "features", {"features": {}}),
        (SchemaError, "valid", {"features": {"valid": FixedLen()}}),
        (SchemaError, "shard", {"features": {"shard": FixedLen()}, "with_ids": True}),
    ]
    for kind, message, change in cases:
        with pytest.raises(kind, match=message) as caught:
            Loader(**{"paths": paths, "features": ALL, "world": World(), **change})
        assert "\n" not in str(caught.value)


def test_schema_errors_show_both_sides(shards: Any) -> None:
    paths = shards([3])
    for features, message in [
        ({"label": FixedLen()}, "label"),
        ({"x": FixedLen((), "float32")}, "float32.*int64"),
        ({"x": FixedLen((2,))}, "2.*1"),
        ({"s": Image()}, "s"),
    ]:
        with pytest.raises((SchemaError, CorruptRecordError), match=message) as caught:
            list(Loader(paths, features, 4, World()))  # type: ignore[arg-type]
        assert caught.value.path == paths[0]
        assert caught.value.record is not None


def test_damage_is_reported_with_its_offset_and_the_loader_stays_before_it(shards: Any) -> None:
    paths = shards([10, 10])
    start_bytes = int(build_index(paths[1]).starts[9])
    content = bytearray(Path(paths[1]).read_bytes())
    content[-6] ^= 1
    Path(paths[1]).write_bytes(content)
    for threads in (1, 4):
        loader = Loader(paths, ALL, 4, World(), threads=threads)
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        with pytest.raises(CorruptRecordError, match="record 9") as caught:
            next(batches)
        assert (caught.value.path, caught.value.record) == (paths[1], 9)
        assert caught.value.offset_bytes == start_bytes
        assert loader.position == 16


def test_other_files_are_refused(shards: Any, tmp_path: Path) -> None:
    paths = shards([3])
    other = tmp_path / "page.tfrecord"
    other.write_text("<html>403</html>" + " " * 100)
    with pytest.raises(FormatError, match="HTML"):
        Loader([*paths, other], ALL, 4, World())
    Path(paths[0]).write_bytes(Path(paths[0]).read_bytes()[:-1])
    with pytest.raises(TruncatedFileError):
        Loader(paths, ALL, 4, World())


def test_shard_truncated_or_rewritten_during_reading_is_an_error(shards: Any) -> None:
    for change in ("cut", "rewrite"):
        paths = shards([30])
        loader = Loader(paths, ALL, 4, World())
        content = Path(paths[0]).read_bytes()
        Path(paths[0]).write_bytes(content[:100] if change == "cut" else b"\1" * len(content))
        with pytest.raises((TruncatedFileError, CorruptRecordError)) as caught:
            list(loader)
        assert caught.value.path == paths[0]


def test_an_iterator_ends_when_its_loader_is_iterated_again(shards: Any) -> None:
    loader = Loader(shards([20]), ALL, 4, World())
    old = iter(loader)
    next(old)
    new = iter(loader)
    with pytest.raises(PlanError, match="over"):
        next(old)
    assert next(new)["x"].tolist() == [4, 5, 6, 7]


def test_abandoned_iteration_leaves_no_thread_and_no_descriptor(shards: Any) -> None:
    paths = shards([50] * 4)
    files, threads = open_descriptors(), _native_threads()
    loader = Loader(paths, ALL, 4, World(), "global", threads=4, prefetch=8)
    for _ in loader:
        break
    del loader, _
    assert not open_descriptors() - files
    # A thread that was joined is in the list until the kernel has removed it.
    eventually(lambda: not _native_threads() - threads)


def _native_threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def test_pickled_loader_continues_in_mid_epoch(shards: Any) -> None:
    loader = Loader(shards([30]), ALL, 4, World(), "global")
    batches = iter(loader)
    next(batches)
    copy = pickle.loads(pickle.dumps(loader))
    assert copy.state_dict() == loader.state_dict()
    for mine, theirs in zip(batches, copy, strict=True):
        assert mine["x"].tolist() == theirs["x"].tolist()


def test_unpickled_loader_refuses_changed_shards(shards: Any) -> None:
    paths = shards([30])
    copy = pickle.dumps(Loader(paths, ALL, 4, World()))
    with Writer(paths[0], exists="append") as w:
        w.write_example({"x": 1})
    with pytest.raises(PlanError, match="changed"):
        pickle.loads(copy).state_dict()


def test_max_open_files_bounds_the_descriptors(shards: Any) -> None:
    from shardkeep import _core, files

    limit = files.budget().limit
    try:
        paths = shards([3] * 40)
        loader = Loader(paths, ALL, 7, World(), "global", max_open_files=5, threads=3)
        rows = sorted(x for b in loader for x in b["x"][b["valid"]].tolist())
        assert rows == list(range(120))
        assert files.budget().open <= files.budget().limit == 5
    finally:
        _core.set_descriptor_limit(limit)


def test_columns_begin_at_64_bytes_so_that_frameworks_need_no_copy(shards: Any) -> None:
    loader = Loader(shards([40]), {"x": FixedLen()}, 3, World(0, 1))
    batches = list(loader)
    assert {batch["x"].ctypes.data % 64 for batch in batches} == {0}

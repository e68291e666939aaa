"""The Ray adapter in a real session: damage, killed tasks, actors, and a job that fails.

Covers `shardkeep.adapters.ray.datasource` and `shardkeep.adapters.ray.datasink`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ray = pytest.importorskip("ray")
pytest.importorskip("ray.data")
pa = pytest.importorskip("pyarrow")

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.ray import TFRecordDatasink, read_tfrecords, write_tfrecords  # noqa: E402
from tests.frameworks.exactly_once import COUNTS, RECORDS  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("ray_session"),
    pytest.mark.filterwarnings("ignore::UserWarning:ray"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

FEATURES = {"x": sk.FixedLen(), "s": sk.FixedLen((), "bytes"), "v": sk.VarLen("float32")}


@pytest.fixture(scope="module")
def damaged(paths: list[str], tmp_path_factory: pytest.TempPathFactory) -> str:
    content = bytearray(Path(paths[3]).read_bytes())
    content[len(content) // 2] ^= 0xFF
    path = tmp_path_factory.mktemp("damaged") / "damaged.tfrecord"
    path.write_bytes(content)
    return str(path)


def numbers(dataset: Any) -> list[int]:
    return sorted(row["x"] for row in dataset.take_all())


def check_rows(pattern: str) -> None:
    """Compare written shards with the records of `write_shards`."""
    columns = sk.tfrecord.read_columns(pattern, FEATURES)
    assert sorted(columns["x"].tolist()) == list(range(RECORDS))
    for x, s, v in zip(columns["x"].tolist(), columns["s"], columns["v"], strict=True):
        assert (s, len(v)) == (b"s" * (x % 3), 1 + x % 4)


@pytest.mark.parametrize("blocks", [None, 2, 100])
def test_every_record_is_read_once(paths: list[str], blocks: int | None) -> None:
    assert numbers(read_tfrecords(paths, FEATURES, override_num_blocks=blocks)) == list(range(RECORDS))


def test_blocks_have_the_types_of_read_arrow(paths: list[str]) -> None:
    batch = next(iter(read_tfrecords(paths[3], text=["s"]).iter_batches(batch_format="pyarrow")))
    assert {field.name: str(field.type) for field in batch.schema} == {
        "s": "large_string",
        "v": "large_list<item: float>",
        "x": "int64",
    }


def test_compressed_shards_are_read(tmp_path: Path, paths: list[str]) -> None:
    with sk.tfrecord.Writer(tmp_path / "a.gz", compression="gzip") as w:
        w.write_examples({"x": np.arange(RECORDS, RECORDS + 5)})
    dataset = read_tfrecords([paths[0], str(tmp_path / "a.gz")], {"x": sk.FixedLen()})
    assert numbers(dataset) == [*range(COUNTS[0]), *range(RECORDS, RECORDS + 5)]


def test_a_damaged_record_is_an_error_of_its_kind(damaged: str) -> None:
    with pytest.raises(sk.CorruptRecordError, match="record 60 at byte"):
        read_tfrecords(damaged, FEATURES).materialize()


def test_a_damaged_record_is_skipped(damaged: str) -> None:
    assert len(numbers(read_tfrecords(damaged, FEATURES, on_corrupt="skip"))) == COUNTS[3] - 1


def test_wrong_arguments_are_refused_before_a_task(paths: list[str]) -> None:
    with pytest.raises(sk.NotFoundError):
        read_tfrecords("nothing-*.tfrecord")
    with pytest.raises(sk.PlanError, match="on_corrupt"):
        read_tfrecords(paths, on_corrupt="ignore")  # type: ignore[arg-type]
    with pytest.raises(sk.SchemaError, match="text"):
        read_tfrecords(paths, FEATURES, text=["z"])


def test_rows_are_written_back_after_a_transform(paths: list[str], tmp_path: Path) -> None:
    # Batches of NumPy come back as Ray's own tensor types.
    dataset = read_tfrecords(paths, FEATURES).map_batches(lambda batch: batch)
    written = write_tfrecords(dataset, tmp_path / "out-{shard:02d}-of-{shards:02d}.tfrecord")
    assert sorted(os.listdir(tmp_path)) == [os.path.basename(path) for path in written]
    check_rows(f"{tmp_path}/out-*")


def test_images_are_written_flat(tmp_path: Path) -> None:
    images = np.arange(5 * 2 * 3 * 3).reshape(5, 2, 3, 3)
    [path] = write_tfrecords(ray.data.from_numpy(images), tmp_path / "{shard}")
    columns = sk.tfrecord.read_columns(path, {"data": sk.FixedLen((2, 3, 3))})
    np.testing.assert_array_equal(columns["data"], images)


def test_a_dataset_without_rows_is_a_set_of_one_shard(tmp_path: Path) -> None:
    [path] = write_tfrecords(
        ray.data.range(3).map_batches(lambda b: {"id": b["id"][:0]}), tmp_path / "{shard}"
    )
    assert list(sk.tfrecord.Reader(path)) == []


def test_an_old_set_is_not_mixed_with_a_new_one(tmp_path: Path) -> None:
    pattern = tmp_path / "out-{shard:05d}-of-{shards:05d}"
    write_tfrecords(ray.data.range(3), pattern)
    with pytest.raises(sk.ExistsError, match="remove the old set"):
        write_tfrecords(ray.data.range(3), pattern)
    write_tfrecords(ray.data.range(3), tmp_path / "output-{shard:05d}-of-{shards:05d}")


def test_a_job_that_fails_leaves_nothing(paths: list[str], tmp_path: Path) -> None:
    def fail(batch: Any) -> Any:
        if RECORDS - 1 in batch["x"]:
            raise ValueError("fails")
        return batch

    with pytest.raises(Exception, match="fails"):
        write_tfrecords(read_tfrecords(paths, FEATURES).map_batches(fail), tmp_path / "{shard}")
    assert os.listdir(tmp_path) == []


class Killed(TFRecordDatasink):
    """A sink of which the first attempt of one task is killed, before or after its file is finished."""

    def __init__(self, pattern: Any, mark: Path, *, finished: bool) -> None:
        super().__init__(pattern)
        self._mark, self._is_finished = mark, finished

    def write(self, blocks: Any, ctx: Any) -> Any:
        if self._is_finished:
            written = super().write(blocks, ctx)
            self._die()
            return written
        return super().write(self._then_die(blocks), ctx)

    def _then_die(self, blocks: Any) -> Iterator[Any]:
        yield from blocks
        self._die()

    def _die(self) -> None:
        try:
            self._mark.touch(exist_ok=False)
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("finished", [False, True])
def test_a_killed_write_task_is_repeated_without_duplicates(
    paths: list[str], tmp_path: Path, finished: bool
) -> None:
    (tmp_path / "out").mkdir()
    sink = Killed(tmp_path / "out/{shard:02d}-of-{shards:02d}", tmp_path / "mark", finished=finished)
    read_tfrecords(paths, FEATURES).write_datasink(sink)
    assert (tmp_path / "mark").exists()
    assert sorted(os.listdir(tmp_path / "out")) == [os.path.basename(path) for path in sink.paths]
    check_rows(f"{tmp_path}/out/*")


def test_what_a_killed_driver_left_is_removed_by_the_next(tmp_path: Path) -> None:
    code = """
import os, signal, sys, types
import pyarrow as pa
from shardkeep.adapters.ray import TFRecordDatasink
sink = TFRecordDatasink(sys.argv[1])
sink.on_write_start()
sink.write([pa.table({"x": [1]})], types.SimpleNamespace(task_idx=0))
os.kill(os.getpid(), signal.SIGKILL)
"""
    pattern = str(tmp_path / "{shard}-of-{shards}")
    subprocess.run([sys.executable, "-c", code, pattern], check=False)
    [left] = os.listdir(tmp_path)
    assert left.startswith(".")
    with pytest.raises(sk.NotFoundError):
        sk.Loader(str(tmp_path / "*"), {"x": sk.FixedLen()}, world=sk.World(0, 1))
    TFRecordDatasink(pattern)
    assert os.listdir(tmp_path) == []


def test_an_actor_without_a_world_warns() -> None:
    @ray.remote
    def detect() -> tuple[int, int, list[str]]:
        import warnings

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            world = sk.World.detect()
        return world.rank, world.size, [str(one.message) for one in caught]

    rank, size, said = ray.get(detect.remote())
    assert (rank, size) == (0, 1)
    assert any("Ray" in one for one in said)

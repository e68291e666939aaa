"""The Grain adapter in real pipelines and workers, with the audit as judge.

Covers `shardkeep.adapters.grain`.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

grain = pytest.importorskip("grain")

from absl import flags  # noqa: E402

import shardkeep as sk  # noqa: E402
from shardkeep.adapters.grain import H5Source, LoaderDataset, RecordSource, TrackedDataset  # noqa: E402
from tests.frameworks.exactly_once import COUNTS, RECORDS, bare, make_loader, rows  # noqa: E402

flags.FLAGS.mark_as_parsed()  # Grain's worker processes need it outside of an absl app


@contextmanager
def iterating(batches: Any) -> Iterator[Any]:
    """Return an iterator, and end its worker processes."""
    iterator = iter(batches)
    try:
        yield iterator
    finally:
        getattr(iterator, "close", list)()  # before Grain 0.2.15 they end with the iterator


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "double": 2 * batch["x"]}


def pipeline(loader: sk.Loader, workers: int) -> TrackedDataset:
    source = LoaderDataset(loader)
    options = grain.MultiprocessingOptions(num_workers=workers)
    return TrackedDataset(source.map(doubled).mp_prefetch(options), source)


def test_what_a_later_step_reads_ahead_is_not_in_its_state(paths: list[str]) -> None:
    ahead = grain.experimental.ThreadPrefetchIterDataset(
        pipeline(make_loader(paths), 0), prefetch_buffer_size=4
    )
    iterator = iter(ahead)
    seen = [rows(next(iterator)) for _ in range(3)]
    resumed = iter(pipeline(make_loader(paths), 0))
    resumed.set_state(iterator.get_state())
    assert seen + [rows(batch) for batch in resumed] == bare(paths, 1)[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_source_alone_resumes_by_the_state_of_grain(paths: list[str], workers: int) -> None:
    options = grain.MultiprocessingOptions(num_workers=workers)
    batches = LoaderDataset(make_loader(paths)).mp_prefetch(options)
    with iterating(batches) as iterator:
        assert iterator.get_state() is not None
        seen = [rows(next(iterator)) for _ in range(5)]
        state = json.loads(json.dumps(iterator.get_state()))
    with iterating(batches) as resumed:
        resumed.set_state(state)
        assert seen + [rows(batch) for batch in resumed] == bare(paths, 1)[0]


@pytest.mark.parametrize("workers", [0, 2])
def test_damage_bytes_and_ragged_rows_cross(paths: list[str], tmp_path: Path, workers: int) -> None:
    damaged = tmp_path / "damaged.tfrecord"
    content = bytearray(Path(paths[3]).read_bytes())
    content[len(content) // 2] ^= 0xFF
    damaged.write_bytes(content)
    features = {"x": sk.FixedLen(), "s": sk.FixedLen(dtype="bytes"), "v": sk.VarLen("float32")}
    loader = sk.Loader(str(damaged), features, 16, sk.World(0, 1), on_corrupt="skip")
    delivered = 0
    for batch in pipeline(loader, workers):
        for i in np.flatnonzero(batch["valid"]):
            number = int(batch["x"][i])
            assert (batch["s"][i], len(batch["v"][int(i)])) == (b"s" * (number % 3), 1 + number % 4)
            delivered += 1
    assert delivered == COUNTS[3] - 1
    assert len(loader.receipt()["skipped"]) == 1


def test_a_sequential_division_is_refused(paths: list[str]) -> None:
    with pytest.raises(sk.PlanError, match="leave it out"):
        LoaderDataset(make_loader(paths)).set_slice(slice(0, None, 2), sequential_slice=True)
    with pytest.raises(sk.PlanError, match=r"a shardkeep\.Loader, not list"):
        LoaderDataset(paths)


def test_records_by_number_in_a_map_dataset(paths: list[str]) -> None:
    source = RecordSource(paths, {"x": sk.FixedLen(), "s": sk.FixedLen(dtype="bytes")})
    assert len(pickle.dumps(source)) < 2500
    batches = grain.MapDataset.source(source).shuffle(seed=3).batch(16)
    assert sorted(x for batch in batches for x in batch["x"].tolist()) == list(range(RECORDS))
    assert source._getitems([5, 4])[0]["s"] == b"ss"


@pytest.mark.parametrize("workers", [0, 2])
def test_records_in_a_dataloader_resume(paths: list[str], workers: int) -> None:
    def make(workers: int) -> Any:
        sampler = grain.samplers.IndexSampler(
            RECORDS, grain.sharding.NoSharding(), shuffle=True, num_epochs=1, seed=1
        )
        source = RecordSource(paths, {"x": sk.FixedLen()})
        return iter(grain.DataLoader(data_source=source, sampler=sampler, worker_count=workers))

    expected = [int(row["x"]) for row in make(0)]
    assert sorted(expected) == list(range(RECORDS))
    iterator = make(workers)
    seen = [int(next(iterator)["x"]) for _ in range(50)]
    state = iterator.get_state()
    if not workers:
        iterator = make(0)
    iterator.set_state(state)
    assert seen + [int(row["x"]) for row in iterator] == expected


def test_rows_of_hdf5_in_worker_processes(tmp_path: Path) -> None:
    with sk.hdf5.open(tmp_path / "x.h5", "w") as f:
        f.create_dataset("x", data=np.arange(400).reshape(200, 2), chunks=(16, 2))
        f["label"] = np.arange(200)
    source = H5Source(tmp_path / "x.h5")
    assert len(pickle.dumps(source)) < 1500
    dataset = grain.MapDataset.source(source).shuffle(seed=1).to_iter_dataset().batch(20)
    options = grain.MultiprocessingOptions(num_workers=2)
    batches = list(dataset.mp_prefetch(options))
    labels = np.concatenate([batch["label"] for batch in batches])
    assert sorted(labels.tolist()) == list(range(200))
    assert all((batch["x"][:, 0] == 2 * batch["label"]).all() for batch in batches)

"""Grain, which reads ahead in threads and worker processes, and divides its sources among them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grain
import numpy as np
from absl import flags

import shardkeep as sk
from shardkeep.adapters.grain import LoaderDataset, TrackedDataset
from tests.frameworks.consumers.drivers import Driver, after_a_peek, by_length, loop
from tests.frameworks.consumers.stories import Answer, case, cases, endless, resumed, whole
from tests.frameworks.exactly_once import make_loader, rows, write_shards

flags.FLAGS.mark_as_parsed()  # Grain's worker processes need it outside of an absl app


class Pipeline(TrackedDataset):
    """A pipeline with a transformation in worker processes."""

    def __init__(self, loader: sk.Loader, workers: int) -> None:
        source = LoaderDataset(loader)
        options = grain.MultiprocessingOptions(num_workers=workers)
        super().__init__(source.map(doubled).mp_prefetch(options), source)

    def __len__(self) -> int:
        return self.loader.steps_per_epoch


def doubled(batch: dict[str, Any]) -> dict[str, Any]:
    return {**batch, "double": 2 * batch["x"]}


def of(batch: dict[str, Any]) -> list[int]:
    assert sorted(batch) == ["double", "valid", "x"]
    assert batch["double"].tolist() == (2 * batch["x"]).tolist()
    return rows(batch)


def workers(number: int, *consume: Any) -> Driver:
    return loop(lambda loader: Pipeline(loader, number), *consume, rows=of)


def pipeline_that_loses_places(change: Any, folder: Path) -> Answer:
    source = LoaderDataset(make_loader(write_shards(folder)))
    list(TrackedDataset(change(source), source))
    raise AssertionError


CHANGES = {
    "keeps one column": lambda ds: ds.map(lambda batch: {"x": batch["x"]}),
    "converts": lambda ds: ds.map(lambda batch: {name: one.astype(np.int32) for name, one in batch.items()}),
    "merges": lambda ds: ds.batch(2),
    "filters": lambda ds: ds.filter(lambda batch: batch["x"][0] % 2),
}
CASES = [
    *cases("Grain", workers(0), "iterates"),
    case("ends by count", "Grain", whole, workers(0, by_length)),
    case("ends by count", "Grain without an end", endless, workers(0)),
    case("peeks", "Grain", whole, workers(0, after_a_peek)),
    case("reads ahead", "Grain, 2 workers", whole, workers(2)),
    case("resumes", "Grain, 2 to 3 workers", resumed, workers(2), later=workers(3)),
    *(
        case(
            "loses the places",
            f"Grain, a pipeline that {name}",
            pipeline_that_loses_places,
            change,
            refusal=r"shardkeep_place|in the order of the steps",
        )
        for name, change in CHANGES.items()
    ),
]

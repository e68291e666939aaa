"""The loader itself, without a framework."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import pytest

import shardkeep as sk
from tests.frameworks.consumers.drivers import by_length, loop
from tests.frameworks.consumers.program_runs import EPOCHS, merged_epochs
from tests.frameworks.consumers.stories import Answer, case, cases, endless
from tests.frameworks.exactly_once import make_loader, rows, write_shards


def rows_in_a_store(folder: Path) -> Answer:
    """Write the rows of a run to a URL."""
    loader, url = make_loader(write_shards(folder)), f"memory://{folder}/run"
    with sk.hdf5.WorkerFile(url, sk.World(0, 1)) as out:
        for epoch in range(EPOCHS):
            for batch in loader:
                out.append("x", rows(batch))
            out.commit(step=epoch + 1, receipt=loader.receipt())
    assert not any("memory" in name for name in os.listdir())
    return merged_epochs(url, folder)


LOOP = loop(lambda loader: loader)
CASES = [
    *cases("Loader", LOOP, "iterates"),
    case("ends by count", "Loader without an end", endless, LOOP),
    *cases("Loader", loop(lambda loader: loader, by_length), "ends by count"),
    case(
        "writes to a URL",
        "WorkerFile",
        rows_in_a_store,
        marks=pytest.mark.skipif(not find_spec("fsspec"), reason="needs fsspec"),
    ),
]

"""Ray: actors, which know no rank."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.consumers.stories import Answer, case
from tests.frameworks.data.ray_session import ray_session
from tests.frameworks.exactly_once import make_loader, rows, write_shards


def actors_with_a_world(folder: Path) -> Answer:
    """Read on three actors, each of which receives its rank."""
    paths = write_shards(folder)
    with ray_session():
        import ray

        @ray.remote
        class Reader:
            def read(self, rank: int, size: int) -> tuple[list[int], dict[str, Any]]:
                loader = make_loader(paths, rank, size)
                return [row for batch in loader for row in rows(batch)], loader.receipt()

        actors = [Reader.remote() for _ in range(3)]
        results = ray.get([actor.read.remote(rank, 3) for rank, actor in enumerate(actors)])
    return [[row for found, _ in results for row in found]], [receipt for _, receipt in results]


# Ray leaves processes and logs of its sessions, this one and an earlier one, to the garbage.
_LEFT = pytest.mark.filterwarnings("ignore::ResourceWarning")
CASES = [case("has processes before a rank is known", "Ray actors", actors_with_a_world, marks=_LEFT)]

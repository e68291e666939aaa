"""Each job on many files with an executor that runs every task twice: the same report, the same files.

Covers `shardkeep.files.threads.work` and `shardkeep.hdf5.merge.chunk_copy`.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from shardkeep.files.threads import groups
from tests.frameworks.engines.same_results import JOBS, compare, make_data


class Twice(ThreadPoolExecutor):
    def submit(self, function: Any, /, *arguments: Any, **options: Any) -> Future[Any]:
        super().submit(function, *arguments).result()
        return super().submit(function, *arguments)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_data(tmp_path_factory.mktemp("same"))


@pytest.mark.parametrize("name", JOBS)
def test_a_task_that_runs_twice_leaves_one_correct_result(
    name: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "_GROUP_FILES", 2)
    with Twice(2) as executor:
        compare(name, data, tmp_path, executor, lambda: None)

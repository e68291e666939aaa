"""Sessions whose checkpoints and rows are on HDFS. Covers `shardkeep.adapters.tensorflow.run_hook`.

The wheels of TensorFlow have no client of HDFS, so the log folder is a mount of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("hdfs_native")
pytest.importorskip("zmq")

import shardkeep as sk  # noqa: E402
from tests.frameworks.consumers.program_runs import EPOCHS  # noqa: E402
from tests.frameworks.consumers.session_cases import Tasks  # noqa: E402
from tests.frameworks.exactly_once import RECORDS  # noqa: E402
from tests.frameworks.remote.servers.hdfs import mini_dfs  # noqa: E402
from tests.frameworks.remote.servers.mounts import hdfs_mount  # noqa: E402
from tests.frameworks.tf.test_run_hook import collect_beside  # noqa: E402


@pytest.fixture(scope="module")
def hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The URL of a folder of HDFS, and the root of its mount."""
    folder = tmp_path_factory.mktemp("hdfs")
    with mini_dfs(folder) as store, hdfs_mount(store.port, folder) as point:
        yield store.root, point


def test_a_killed_process_continues_from_its_checkpoint(
    hdfs: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, point = hdfs
    monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "cache"))
    (point / "log").mkdir()
    (tmp_path / "log").symlink_to(point / "log")
    with Tasks(tmp_path) as tasks:
        code, lines = tasks.run("alone", kill_after=17, run=f"{url}/run")
        assert (code, lines[0]) == (-9, "began None"), tasks.logs()
        monkeypatch.setenv("SHARDKEEP_CACHE_DIR", str(tmp_path / "of another host"))
        code, lines = tasks.run("alone", run=f"{url}/run")
        assert (code, lines[0], lines[-1]) == (0, "began 10", "ended 28"), tasks.logs()
    sk.hdf5.merge(f"{url}/run", f"{url}/all.h5")
    with sk.hdf5.open(f"{url}/all.h5") as file:
        assert sorted(file["x"][:].tolist()) == sorted([*range(RECORDS)] * EPOCHS)
    assert sk.audit(f"{url}/run").ok
    assert tf.train.load_variable(str(point / "log"), "seen") == EPOCHS * RECORDS


def test_rows_of_a_collector_wait_for_the_checkpoint(hdfs: tuple[str, Path], tmp_path: Path) -> None:
    collect_beside(hdfs[1] / "log-of-collector", tmp_path)

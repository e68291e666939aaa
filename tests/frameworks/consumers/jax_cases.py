"""Two real processes of `jax.distributed` with two CPU devices each, and a loader from before it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.frameworks.consumers.program_runs import PROGRAMS
from tests.frameworks.consumers.stories import Answer, case
from tests.frameworks.exactly_once import RECORDS, write_shards
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
SIZE = 2


def two_processes(folder: Path) -> Answer:
    """Train on global batches; a loader that was made before the processes know their rank is refused."""
    paths = write_shards(folder)
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JAX_")}
    environment |= {
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [sys.executable, "-m", f"{PROGRAMS}.jax_run"]
    processes = [
        subprocess.Popen(
            [*command, str(rank), str(SIZE), address, str(folder), *paths],
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(SIZE)
    ]
    outputs = [process.communicate(timeout=PATIENCE_S)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    reports = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(SIZE)]
    for rank, report in enumerate(reports):
        assert report["world"] == [rank, SIZE, "jax.distributed"]
        assert report["devices"] == [2, 4]
        assert report["shapes"] == [[20]]
        assert report["total"] == sum(range(RECORDS))
        assert f"jax.distributed says rank {rank} of 2" in report["refusal"]
        assert "column 'x' of shape (9,) does not fit the sharding" in report["misfit"]
    return [reports[0]["rows"] + reports[1]["rows"]], [report["receipt"] for report in reports]


CASES = [case("has processes before a rank is known", "jax.distributed", two_processes)]

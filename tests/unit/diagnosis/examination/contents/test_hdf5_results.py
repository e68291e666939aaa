"""Marks of open HDF5 files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest

from shardkeep.diagnosis.examination.contents import hdf5_results
from shardkeep.hdf5.journal.superblock import refused_flags

SurveyOf = Callable[..., Any]


def killed(path: Path, libver: str, user_block: int = 0) -> Path:
    """Write a file as a killed process leaves it: flushed, and marked as open."""
    with h5py.File(f"{path}.open", "w", libver=libver, userblock_size=user_block) as file:
        file["x"] = [1]
        file.flush()
        shutil.copy(f"{path}.open", path)
    os.unlink(f"{path}.open")
    return path


def test_a_closed_file_is_healthy(tmp_path: Path, survey_of: SurveyOf) -> None:
    with h5py.File(tmp_path / "rows.h5", "w", libver="latest") as file:
        file["x"] = [1]
    assert survey_of(tmp_path).ok


@pytest.mark.parametrize("user_block", [0, 1024])
def test_a_file_that_its_writer_did_not_close_is_an_error(
    user_block: int, tmp_path: Path, survey_of: SurveyOf
) -> None:
    path = killed(tmp_path / "rows.h5", "latest", user_block)
    with pytest.raises(OSError, match="already open for write"):
        h5py.File(path, "r")
    one = survey_of(tmp_path).only("hdf5")
    assert (one.severity, one.path) == ("error", str(path))
    assert "no process has it open" in one.evidence
    assert one.command == f"shardkeep repair {path} {tmp_path}/rows.repaired.h5"


def test_a_file_that_opens_in_spite_of_a_mark_is_healthy(tmp_path: Path, survey_of: SurveyOf) -> None:
    h5py.File(killed(tmp_path / "rows.h5", "earliest"), "r").close()
    assert survey_of(tmp_path).ok


def test_on_a_network_file_system_another_host_may_write_it(
    tmp_path: Path, survey_of: SurveyOf, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(tmp_path / "rows.h5", "latest")
    monkeypatch.setattr(hdf5_results, "is_of_one_kernel", lambda _: False)
    one = survey_of(tmp_path).only("hdf5")
    assert one.severity == "warning"
    assert "no process that can be seen from here" in one.evidence


@pytest.mark.parametrize(
    "block", [b"", b"\x89HDF\r\n\x1a\n\x03\x08\x08", b"\x89HDF\r\n\x1a\n\x00" + b"\xff" * 40]
)
def test_other_bytes_have_no_flags(block: bytes) -> None:
    assert refused_flags(block) == 0

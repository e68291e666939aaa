"""The examples of each help run as they are, in order, in a folder with the files that they name."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.cli.app import app, run
from shardkeep.cli.exit_codes import ExitCode
from tests.odd_files import frame
from tests.unit.jobs.packing import image
from tests.waiting import PATIENCE_S, eventually

COMMANDS = sorted(app.commands)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    records = [sk.tfrecord.encode_example({"x": [i, i], "label": i % 3}) for i in range(40)]
    (folder / "data").mkdir()
    for name in ("train", "train-00000-of-00002", "train-00001-of-00002", "data/a", "data/b"):
        (folder / f"{name}.tfrecord").write_bytes(b"".join(map(frame, records)))
    (folder / "train.log").write_text("all is well\n")
    whole = (folder / "train.tfrecord").read_bytes()
    (folder / "damaged.tfrecord").write_bytes(whole[:100] + bytes(50) + whole[150:])
    for label in ("cat", "dog"):
        (folder / "photos" / label).mkdir(parents=True)
        (folder / "photos" / label / "0.png").write_bytes(image(seed=0))
    (folder / "table.csv").write_text("zip,price\n01234,1.5\n98765,2\n")
    (folder / "receipts").mkdir()
    for rank in range(2):
        world = sk.World(rank, 2)
        loader = sk.Loader(folder / "train.tfrecord", batch_size=4, world=world)
        with sk.hdf5.WorkerFile(folder / "run", world) as out:
            out.declare("loss", "f4")
            for _ in loader:
                out.append("loss", np.ones(4, "f4"))
            out.commit(step=10, receipt=loader.receipt())
        (folder / "receipts" / f"{rank}.json").write_text(json.dumps(loader.receipt()))
    sk.merge(folder / "run", folder / "all.h5")
    return folder


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("collect", "demo", "view")])
def test_examples(name: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = shutil.copytree(prepared, tmp_path / "work")
    monkeypatch.chdir(folder)
    for example in app.commands[name].examples:  # type: ignore[attr-defined]
        program, *arguments = shlex.split(example)
        assert program == "shardkeep"
        # A machine that runs the tests may have faults.
        expected = (ExitCode.CLEAN, ExitCode.FINDINGS) if name == "doctor" else (ExitCode.CLEAN,)
        assert run(arguments) in expected, example


def test_collect_until_a_signal(tmp_path: Path) -> None:
    rows, key = app.commands["collect"].examples  # type: ignore[attr-defined]
    program = [sys.executable, "-m", *shlex.split(rows)]
    with subprocess.Popen(program, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as collector:
        eventually(lambda: (tmp_path / "rows.h5").exists(), "the file of the collector")
        collector.send_signal(signal.SIGTERM)
        collector.communicate(timeout=PATIENCE_S)
    assert (tmp_path / "rows.h5").exists()
    subprocess.run([sys.executable, "-m", *shlex.split(key)], cwd=tmp_path, check=True)
    assert {"run.key", "run.key.client"} <= set(os.listdir(tmp_path))


def test_view_until_a_signal(prepared: Path) -> None:
    for example in app.commands["view"].examples:  # type: ignore[attr-defined]
        program = [sys.executable, "-m", *shlex.split(example)]
        with subprocess.Popen(program, cwd=prepared, stdout=subprocess.PIPE, text=True) as server:
            assert "http://127.0.0.1:" in server.stdout.readline()  # type: ignore[union-attr]
            server.send_signal(signal.SIGTERM)
            assert server.wait(PATIENCE_S) == ExitCode.TERMINATED


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    for example in app.commands["demo"].examples:  # type: ignore[attr-defined]
        subprocess.run([sys.executable, "-m", *shlex.split(example)], cwd=tmp_path, check=True)


@pytest.mark.parametrize("name", COMMANDS)
def test_two_examples(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    examples = capsys.readouterr().out.partition("\nExamples:\n")[2].splitlines()
    assert len(examples) == 2
    assert all(
        example.startswith(f"  shardkeep {name} ") or example == f"  shardkeep {name}" for example in examples
    )

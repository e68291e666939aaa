"""Every command has help, a section in the documentation, and starts quickly."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from shardkeep import jobs
from shardkeep.cli import ExitCode
from shardkeep.cli.app import app, run
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]

COMMANDS = sorted(app.commands)


# Where the function of a command has another name than the command.
FUNCTIONS = {
    "collect": "hdf5.Collector",
    "view": "viewer.serve",
    "demo": "demo.run",
    "index": "build_index",
    "schema": "infer_schema",
}


def source_of(command: str) -> Path:
    callback = app.commands[command].callback
    assert callback is not None
    path = Path(inspect.getfile(inspect.unwrap(callback)))
    assert path.name == f"{command}.py"
    return path


def python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    return done.stdout


def test_the_commands_that_exist() -> None:
    names = "audit bench cat collect concat demo doctor explain follow index info merge pack repair"
    assert " ".join(COMMANDS) == f"{names} rollback schema split verify view"


@pytest.mark.parametrize("name", COMMANDS)
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = app.commands[name]
    assert run([name, "--help"]) == ExitCode.CLEAN
    printed = capsys.readouterr().out
    assert printed.startswith(f"Usage: shardkeep {name} ")
    assert not printed.endswith("...")
    assert command.help
    assert len(command.get_short_help_str(limit=200)) <= 70
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts}"
            assert parameter.help.endswith("."), parameter.help


@pytest.mark.parametrize("name", COMMANDS)
def test_has_a_file_of_its_own_and_a_section_in_the_docs(name: str) -> None:
    assert source_of(name).exists()
    assert f"\n## shardkeep {name}\n" in (ROOT / "docs/commands.md").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_reports_as_json_too(name: str) -> None:
    assert any("--json" in parameter.opts for parameter in app.commands[name].params)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_function_of_a_command_needs_no_other_import(name: str) -> None:
    function = FUNCTIONS.get(name, name)
    assert python(f"import shardkeep as sk; print(callable(sk.{function}))") == "True\n"


def test_jobs_are_the_same_functions_at_the_top() -> None:
    code = """
import shardkeep as sk

assert sk.verify is sk.jobs.verify and sk.split is sk.jobs.split and sk.merge is sk.hdf5.merge
from shardkeep.jobs.division import assignment
from shardkeep.jobs.split import split
from shardkeep.hdf5.merge.merge import merge

assert sk.split is sk.jobs.split is split and sk.merge is sk.hdf5.merge is merge
"""
    python(code)


def test_summaries_are_not_cut_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["--help"]) == ExitCode.CLEAN
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines[1:] if line.endswith("...")] == []
    assert max(map(len, lines)) <= 80


def test_help_loads_nothing_heavy() -> None:
    code = """
import json, sys
from shardkeep.cli.app import run

run(["--help"])
print(json.dumps([name for name in ("numpy", "h5py", "rich.console", "asyncio") if name in sys.modules]))
"""
    assert json.loads(python(code).splitlines()[-1]) == []


def test_commands_are_as_thin_as_what_they_call() -> None:
    for name in COMMANDS:
        source = source_of(name).read_text()
        assert len(source.splitlines()) <= 70, name
        assert re.search(
            r"^    from shardkeep\.(jobs|hdf5|collector|demo|diagnosis|tfrecord|viewer)[.\w]* import",
            source,
            re.MULTILINE,
        ), name


@pytest.mark.parametrize(
    "cls", [getattr(jobs, name) for name in jobs.__all__ if name.endswith(("Info", "Item"))]
)
def test_results_become_json(cls: type) -> None:
    top = {"TFRecordInfo", "HDF5Info", "FolderInfo", "RecordItem", "RowItem"}
    assert (cls.__name__ in top) == ("to_dict" in vars(cls))
    assert inspect.getdoc(cls)

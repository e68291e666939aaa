"""Every path argument of a public function and of a command takes a URL, or refuses it and leaves nothing."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import h5py
import numpy as np
import pytest
from PIL import Image

from shardkeep import FixedLen, World
from shardkeep.cli.app import app, run
from shardkeep.errors import CollectorError, MissingExtraError, NotFoundError, PlanError
from shardkeep.tfrecord import Writer

URLS = ["s3://bucket/run", "simplecache::gs://bucket/*.tfrecord"]
PACKAGES = ["", ".demo", ".files", ".hdf5", ".jobs", ".plan", ".tfrecord"]
# Arguments that are required apart from the path.
OTHERS: dict[str, Any] = {
    "paths": "a.tfrecord",
    "path": "a.tfrecord",
    "shard": "a.tfrecord",
    "source": {"x": np.arange(3)},
    "sources": "a.h5",
    "output": "out",
    "pattern": "out-{shard}.tfrecord",
    "features": {"x": FixedLen()},
    "world": World(),
    "step": 1,
    "shards": 1,
}
# Arguments of which one requires the other.
WITH: dict[tuple[str, str], dict[str, Any]] = {
    ("connect", "spill_dir"): {"place": "ipc:///none/x", "on_full": "spill", "timeout_s": 0.0},
    ("connect", "key_file"): {"place": "ipc:///none/x", "timeout_s": 0.0},
    ("connect", "place"): {"timeout_s": 0.0},
    ("Collector", "key_file"): {"path": "collected.h5", "address": "tcp://127.0.0.1:*"},
    ("pack", "labels"): {"source": "images"},
    ("pack", "labels_path"): {"source": "images"},
}
# These accept URLs; here their back ends are not installed.
READ = {
    ("Loader", "paths"),
    ("Reader", "path"),
    ("audit", "data"),
    ("audit", "paths"),
    ("build_index", "paths"),
    ("cat", "path"),
    ("concat", "paths"),
    ("doctor", "paths"),
    ("infer_schema", "paths"),
    ("info", "path"),
    ("merge", "sources"),
    ("open", "path"),
    ("plan_merge", "sources"),
    ("pack", "source"),
    ("read_arrow", "paths"),
    ("read_columns", "paths"),
    ("read_scalars", "logdir_or_file"),
    ("read_text_index", "path"),
    ("read_text_index", "shard"),
    ("receipts", "path"),
    ("repair", "path"),
    ("split", "paths"),
    ("verify", "path"),
    ("verify", "paths"),
    ("write_text_index", "path"),
}
WRITTEN = {
    ("Collector", "path"),
    ("ShardWriter", "pattern"),
    ("WorkerFile", "run_dir"),
    ("Writer", "path"),
    ("concat", "output"),
    ("merge", "output"),
    ("pack", "labels_path"),
    ("pack", "pattern"),
    ("publish", "path"),
    ("publish_path", "path"),
    ("publish_set", "paths"),
    ("repair", "output"),
    ("rollback", "run_dir"),
    ("split", "pattern"),
    ("write_text_index", "output"),
}
# These find the collector of a URL on this host; here there is none.
FOUND = {("connect", "place"): CollectorError, ("snapshot", "path"): NotFoundError}
COMMANDS: dict[str, list[str]] = {
    "collect": ["collected.h5"],
    "concat": ["a.tfrecord", "--output", "out"],
    "demo": [],
    "merge": ["a.h5", "--output", "out"],
    "repair": ["a.tfrecord", "out"],
    "rollback": ["run", "--step", "1"],
    "pack": ["images", "--output", "out-{shard}.tfrecord", "--shards", "1"],
    "split": ["a.tfrecord", "--output", "out-{shard}.tfrecord", "--shards", "1"],
}


def functions_with_paths() -> Iterator[tuple[str, Callable[..., Any], str]]:
    seen = set()
    for package in PACKAGES:
        module = importlib.import_module(f"shardkeep{package}")
        for name in module.__all__:
            one = getattr(module, name)
            is_error = inspect.isclass(one) and issubclass(one, BaseException)
            if not callable(one) or is_error or one in seen:
                continue
            seen.add(one)
            for parameter in inspect.signature(one).parameters.values():
                is_opened = (name, parameter.name) != ("plan_merge", "output")
                if is_opened and re.search(r"\bPath|Sources", str(parameter.annotation)):
                    yield name, one, parameter.name


WALKED = list(functions_with_paths())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with Writer(tmp_path / "a.tfrecord") as w:
        w.write_example({"x": 1})
    with h5py.File(tmp_path / "a.h5", "w") as f:
        f["x"] = [1]
    (tmp_path / "images/cat").mkdir(parents=True)
    Image.new("L", (1, 1)).save(tmp_path / "images/cat/1.png")
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    yield tmp_path
    assert sorted(tmp_path.rglob("*")) == before


def test_the_walk_finds_the_functions() -> None:
    found = {(name, argument) for name, _, argument in WALKED}
    assert {("Loader", "paths"), ("WorkerFile", "run_dir"), ("merge", "sources"), ("lock", "path")} <= found
    assert len(found) > 35


@pytest.mark.parametrize("url", URLS)
@pytest.mark.parametrize(
    ("name", "function", "argument"), WALKED, ids=[f"{name}-{argument}" for name, _, argument in WALKED]
)
def test_function_refuses_a_url(
    name: str, function: Callable[..., Any], argument: str, url: str, folder: Path
) -> None:
    given = dict(WITH.get((name, argument), {}))
    for parameter in inspect.signature(function).parameters.values():
        if parameter.default is parameter.empty and parameter.kind is not parameter.VAR_KEYWORD:
            given.setdefault(parameter.name, OTHERS.get(parameter.name))
    annotation = str(inspect.signature(function).parameters[argument].annotation)
    if argument == "pattern":
        given, url = {**given, "shards": 1}, f"{url}-{{shard}}"
    values: list[Any] = [url]
    if re.search("Iterable|Sequence|PathsLike|Sources", annotation):
        values = [["a.tfrecord", url]] if "Sequence" in annotation else [url, [url]]
    if name in ("build_index", "publish_set"):
        values = [[url]]
    for value in values:
        expected, why = FOUND.get((name, argument), PlanError), "is a URL|no collector|searching on this host"
        if (name, argument) in READ | WRITTEN:
            expected, why = MissingExtraError, "cannot be imported"
        with pytest.raises(expected, match=why) as caught:
            result = function(**{**given, argument: value})
            if hasattr(result, "__enter__"):
                with result:
                    pass
            elif hasattr(result, "__next__"):
                next(result)
        assert url.replace("{shard}", "0") in (
            str(caught.value) if expected is CollectorError else str(caught.value.path)
        )


def commands_with_paths() -> Iterator[tuple[str, click.Parameter]]:
    for name, command in sorted(app.commands.items()):
        for parameter in command.params:
            if isinstance(parameter.type, click.Path):
                yield name, parameter


@pytest.mark.parametrize(
    ("name", "parameter"),
    list(commands_with_paths()),
    ids=[f"{name}-{parameter.name}" for name, parameter in commands_with_paths()],
)
def test_command_refuses_a_url(
    name: str, parameter: click.Parameter, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = list(COMMANDS.get(name, []))
    if isinstance(parameter, click.Argument):
        words[:1] = [URLS[0]]
    else:
        option = parameter.opts[0]
        if option in words:
            del words[words.index(option) : words.index(option) + 2]
        words += [option, URLS[0]]
    assert run([name, *words]) == 2
    said = capsys.readouterr().err
    assert f"{URLS[0]} is a URL" in said or f"{URLS[0]}: its back end cannot be imported" in said

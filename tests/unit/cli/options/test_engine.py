from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from shardkeep.cli.app import app
from shardkeep.tfrecord import Writer


def test_an_address_without_an_engine_is_refused(tmp_path: Path) -> None:
    with Writer(tmp_path / "a") as writer:
        writer.write(b"a")
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "a"), "--address", "tcp://n1:8786"])
    assert done.exit_code != 0
    done = CliRunner().invoke(app, ["verify", str(tmp_path / "a"), "--engine", "local"])
    assert done.exit_code == 0


@pytest.mark.parametrize("name", ["verify", "index", "split", "concat", "pack", "merge", "repair"])
def test_commands_on_many_files_have_the_options(name: str) -> None:
    assert {"engine", "address"} <= {one.name for one in app.commands[name].params}

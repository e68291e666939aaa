"""``shardkeep collect``: values that make no sense, and keys.

Covers `shardkeep.cli.options.collector`.
"""

import json
import os
import tempfile

import h5py
import pytest

from shardkeep.cli.app import run
from shardkeep.collector.protocol.settings import Settings
from shardkeep.errors import PlanError


@pytest.mark.parametrize(
    ("options", "why"),
    [
        *((["--drain", value], "seconds from 0 to") for value in ("nan", "-1", "inf", "-inf", "1e300")),
        (["--drain", "x"], "not a valid float"),
        *(
            (["--memory", value], "must be")
            for value in ("0", "-1", "nan", "inf", "1e300", "MB", "", "9" * 400)
        ),
        (["--memory", "1MB"], "must be at least 16777216 (16 MiB)"),
        *((["--metrics-port", value], "0<=x<=65535") for value in ("99999", "-1")),
        (["--metrics-port", "x"], "not a valid integer"),
        (["--listen", "tcp://127.0.0.1:99999"], "65535"),
        (["--listen", "tcp://127.0.0.1:-1"], "not an address"),
        (["--listen", "tcp://127.0.0.1:5555"], "needs a key"),
        (["--listen", "nowhere"], "not an address"),
        (["--listen", "ipc:///no/such/folder/socket"], "cannot listen"),
        (["--durability", "x"], "fsync"),
        (["--key-file", "none", "--listen", "tcp://127.0.0.1:*"], "does not exist"),
        (["--key-file", "/", "--listen", "tcp://127.0.0.1:*"], "Is a directory"),
    ],
)
def test_values_that_make_no_sense(tmp_path, capfd, options, why):
    code = run(["collect", str(tmp_path / "all.h5"), *options])
    told = capfd.readouterr()
    assert code in (2, 3, 10)
    last = told.err.splitlines()[-1]
    assert last.startswith("shardkeep: error: "), told.err
    assert why in last
    assert "Traceback" not in told.err
    assert not os.path.exists(tmp_path / "all.h5.redo")


@pytest.fixture
def short():
    """Return a folder whose name leaves room for that of a socket."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        yield folder


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("none/all.h5", "there is no folder"),
        (".", "is a folder: name a file in it"),
        ("", "is a folder: name a file in it"),
        ("text.h5", "file signature not found"),
        ("mine.h5", "was not written by a collector"),
    ],
)
def test_files_that_it_cannot_write(tmp_path, capfd, monkeypatch, short, name, why):
    """It says why, and leaves nothing: no file, and no folder for a socket."""
    (tmp_path / "run").mkdir()
    (tmp_path / "run/text.h5").write_text("text")
    h5py.File(tmp_path / "run/mine.h5", "w").close()
    monkeypatch.setattr(tempfile, "tempdir", short)
    monkeypatch.chdir(tmp_path / "run")
    assert run(["collect", name]) in (2, 3, 10)
    (line,) = capfd.readouterr().err.splitlines()
    assert why in line
    assert line.count("(") == line.count(")")
    assert sorted(os.listdir()) == ["mine.h5", "text.h5"]
    assert os.listdir(short) == []


def test_the_wrong_half_of_a_key(tmp_path, capfd):
    key = str(tmp_path / "run.key")
    assert run(["collect", "--new-key", key]) == 0
    listen = ["--listen", "tcp://127.0.0.1:*"]
    assert run(["collect", str(tmp_path / "all.h5"), *listen, "--key-file", key + ".client"]) == 2
    assert "it is the other half" in capfd.readouterr().err


def test_settings_that_make_no_sense():
    for values in ({"drain_s": float("nan")}, {"drain_s": -1.0}, {"memory_bytes": 1e9}, {"memory_bytes": 0}):
        with pytest.raises(PlanError):
            Settings("all.h5", "", **values)


def test_new_key_is_printed_as_json_on_request(tmp_path, capfd):
    key = str(tmp_path / "run.key")
    assert run(["collect", "--new-key", key, "--json"]) == 0
    (line,) = capfd.readouterr().out.splitlines()
    told = json.loads(line)
    assert (told["event"], told["server"], told["client"]) == ("key", key, key + ".client")
    before = [(tmp_path / name).read_bytes() for name in sorted(os.listdir(tmp_path))]
    assert run(["collect", "--new-key", key]) == 2
    assert [(tmp_path / name).read_bytes() for name in sorted(os.listdir(tmp_path))] == before
    assert "not overwritten" in capfd.readouterr().err


def test_a_key_that_others_can_read_is_refused(tmp_path, capfd):
    key = str(tmp_path / "run.key")
    assert run(["collect", "--new-key", key]) == 0
    os.chmod(key, 0o640)
    assert run(["collect", str(tmp_path / "all.h5"), "--listen", "tcp://127.0.0.1:*", "--key-file", key]) == 3
    assert not (tmp_path / "all.h5").exists()
    assert "chmod 600" in capfd.readouterr().err

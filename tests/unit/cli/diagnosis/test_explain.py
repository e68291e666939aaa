"""The command ``shardkeep explain``.

Covers `shardkeep.cli.output.explain`.
"""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from shardkeep.cli.app import run

PRINTED = """\
The file was deleted or replaced on the file server while it was open
error   OSError: [Errno 116] Stale file handle: 'x' (line 2 and 1 more line)
cause   certain: ESTALE: NFS has no file any more for the handle of this
        process. Another host deleted or replaced the file or its folder, or the
        server exported another file system after a restart.
fix     Open the file again by its name. Do not replace files that a running job
        reads from another host; give new versions new names.
prove   ls -li PATH
source  https://man7.org/linux/man-pages/man5/nfs.5.html
"""


def log(folder: Path, *lines: bytes) -> str:
    path = folder / "job.log"
    path.write_bytes(b"\n".join(lines))
    return str(path)


def test_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = b"OSError: [Errno 116] Stale file handle: 'x'"
    assert run(["explain", log(tmp_path, b"start \xff", line, line)]) == 0
    assert capsys.readouterr().out == PRINTED


def test_text_without_a_known_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", log(tmp_path, b"KeyError: 'x'")]) == 0
    assert capsys.readouterr().out == "no known cause in this text\n"


def test_standard_input_and_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"OSError: [Errno 116] Stale file handle")))
    assert run(["explain", "-", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["name"], found["line"], found["count"]) == ("system/stale-handle", 1, 1)


def test_a_compressed_log_is_not_a_text_without_a_known_cause(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "job.log.gz"
    log.write_bytes(gzip.compress(b"OSError: [Errno 116] Stale file handle: 'x'\n"))
    assert run(["explain", str(log)]) == 2
    error = capsys.readouterr().err
    assert "expected a text, found gzip-compressed data" in error and "; unpack it first" in error
    log.write_bytes(b"a\xff\0" * 9)
    assert run(["explain", str(log)]) == 0


def test_a_missing_log_is_not_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["explain", str(tmp_path / "no.log")]) == 10
    assert "No such file" in capsys.readouterr().err

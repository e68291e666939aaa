"""Completion in real shells: bash, and zsh and fish where they are installed."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import h5py
import pytest

from tests.waiting import PATIENCE_S

BIN = Path(sys.executable).parent
START = {
    "bash": 'eval "$(_SHARDKEEP_COMPLETE=bash_source shardkeep)"',
    "zsh": 'autoload -Uz compinit; compinit -u -D; eval "$(_SHARDKEEP_COMPLETE=zsh_source shardkeep)"',
}
OPTIONS = {"bash": ["--norc", "--noprofile", "-i"], "zsh": ["-f", "-i"]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["validation_loss"] = [1, 2]
        file["accuracy"] = [3, 4]
    (tmp_path / "cut.h5").write_bytes((tmp_path / "rows.h5").read_bytes()[:700])
    return tmp_path


def typed(shell: str, line: str, expected: str, folder: Path) -> str:
    """Type a line with tabs into an interactive shell; return its output up to the expected text."""
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.environ |= {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "PS1": "$ ",
            "TERM": "xterm",
            "HOME": str(folder),
        }
        os.execvp(shell, [shell, *OPTIONS[shell]])
    output = b""
    try:
        os.write(terminal, f"{START[shell]}; echo rea''dy\n".encode())
        deadline, sent = time.monotonic() + PATIENCE_S, False
        while expected.encode() not in output.partition(b"ready\r\n")[2]:
            assert time.monotonic() < deadline, output.decode(errors="replace")
            if select.select([terminal], [], [], 1)[0]:
                output += os.read(terminal, 4096)
            if not sent and b"ready\r\n" in output:
                os.write(terminal, line.encode())
                sent = True
    finally:
        os.kill(pid, 9)
        os.close(terminal)
        os.waitpid(pid, 0)
    return output.decode(errors="replace")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("shardkeep sch\t", "schema"),
        ("shardkeep concat --on-c\t", "--on-corrupt"),
        ("shardkeep concat --on-corrupt rep\t", "repair"),
        ("shardkeep info row\t", "rows.h5"),
        ("shardkeep cat rows.h5 --dataset val\t", "validation_loss"),
        ("shardkeep cat cut.h5 --dataset v\t; echo al''ive\n", "alive"),
    ],
)
def test_interactive_shell(shell: str, line: str, expected: str, folder: Path) -> None:
    assert "Traceback" not in typed(shell, line, expected, folder)


def test_fish(folder: Path) -> None:
    if shutil.which("fish") is None:
        pytest.skip("no fish here")
    program = "_SHARDKEEP_COMPLETE=fish_source shardkeep | source; complete -C 'shardkeep {}'"
    for line, expected in (("sch", "schema"), ("cat rows.h5 --dataset val", "validation_loss")):
        done = subprocess.run(
            ["fish", "-c", program.format(line)],
            cwd=folder,
            env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(folder)},
            capture_output=True,
            text=True,
            check=True,
        )
        assert expected in done.stdout, done

"""A reader of a page: takes its steps in their order, in one folder and one session of Python.

Reads a JSON list of `[kind, text, name]` from standard input. A "file" is stored under its name, "python" is
run in the session, "console" is a command for bash. Prints a JSON list of `[output, exit code]`, up to the
first block of Python that fails.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

from tests.waiting import PATIENCE_S


def run_python(text: str, name: str, session: dict[str, Any]) -> tuple[str, int]:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(compile(text, name, "exec"), session)
    except BaseException:
        return printed.getvalue() + traceback.format_exc(), 1
    return printed.getvalue(), 0


def run_command(command: str) -> tuple[str, int]:
    done = subprocess.run(
        ["bash", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.stdout, done.returncode


def main() -> None:
    session: dict[str, Any] = {"__name__": "__main__"}
    outcomes = []
    for kind, text, name in json.load(sys.stdin):
        if kind == "file":
            outcomes.append((f"{Path(name).write_text(text)} characters", 0))
        elif kind == "console":
            outcomes.append(run_command(text))
        else:
            outcomes.append(run_python(text, name, session))
            if outcomes[-1][1]:
                break
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main()

"""TensorFlow in a child process that all tests of a run share."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import PATIENCE_S

# Nothing that a script or TensorFlow itself prints may come between the answers.
_SERVER = """
import contextlib, io, json, os, sys, traceback
answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(2, 1)
for line in sys.stdin:
    script, arguments = json.loads(line)
    out, error = io.StringIO(), ""
    sys.argv = ["-c", *arguments]
    try:
        with contextlib.redirect_stdout(out):
            exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})
    except BaseException:
        error = traceback.format_exc()
    answers.write(json.dumps([out.getvalue(), error]) + "\\n")
    answers.flush()
"""


class TensorFlow:
    """Scripts run in one process that has imported TensorFlow once, each in its own namespace."""

    def __init__(self, child: subprocess.Popen[str], log: Path) -> None:
        self._child = child
        self._log = log

    def run(self, script: str, *arguments: object) -> str:
        """Return what a script prints; `arguments` are its ``sys.argv[1:]``. Fail with its traceback."""
        child = self._child
        assert child.stdin is not None and child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps([script, [str(one) for one in arguments]]) + "\n")
            child.stdin.flush()
        came, _, _ = select.select([child.stdout], [], [], PATIENCE_S)
        answer = child.stdout.readline() if came else ""
        if not answer:
            child.kill()  # the next script would get the answer to this one
            raise AssertionError(f"TensorFlow did not answer: {self._log.read_text()[-2000:]}")
        out, error = json.loads(answer)
        assert not error, error[-2000:]
        return str(out)


@contextlib.contextmanager
def tensorflow_child(python: str, log: Path) -> Iterator[TensorFlow]:
    """Start the process; what it writes to standard error goes to `log`, for a pipe would fill."""
    with log.open("w") as errors:
        child = subprocess.Popen(
            [python, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    with child:
        try:
            yield TensorFlow(child, log)
        finally:
            child.kill()
            assert child.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # what could not be written is still buffered
                child.stdin.close()

"""The child process in which commands meet failing calls of the kernel.

It takes lines of JSON, ``[template, work, arguments, functions, part, errno, first, last]``: copies the
folder `template` to `work`, and runs the command there while calls of `functions` on files with `part` in
their paths fail, from the first-th to the last-th. It answers with exit code, standard output, standard
error, the number of calls, and each file afterwards with a digest of its bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from shardkeep.cli.app import run
from tests.procs.failing_disk import FailingCalls


def _files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _answer(calls: FailingCalls, question: list[Any]) -> list[Any]:
    template, work, arguments, functions, part, number, first, last = question
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(template, work)
    os.chdir(work)
    out, err = io.StringIO(), io.StringIO()
    plan = calls.failing(functions, part, number, first=first, last=last)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), plan:
        try:
            code = run(arguments)
        except BaseException as error:
            code, _ = -1, err.write(repr(error))
        count = calls.calls
    os.chdir("/")
    return [code, out.getvalue(), err.getvalue(), count, _files(Path(work))]


def main() -> None:
    """Serve until standard input ends."""
    calls = FailingCalls.inherited()
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        print(json.dumps(_answer(calls, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()

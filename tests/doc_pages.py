"""Pages of the documentation, run in the order of their blocks as a reader would."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.waiting import PATIENCE_S

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```(\w*)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    info: str
    text: str


def blocks_of(page: Path) -> list[Block]:
    content = page.read_text(encoding="utf-8")
    return [
        Block(page, content.count("\n", 0, match.start()) + 1, match[1], match[2].strip(), match[3])
        for match in FENCE.finditer(content)
    ]


def name_of(block: Block) -> str:
    return f"{block.page.relative_to(ROOT)}:{block.line}"


# Commands of a page that its test does not run: they change the machine or build the project.
NOT_RUN = re.compile(r"(make|pip|cargo|git|cd)\b")


class Step(NamedTuple):
    """One action of a reader, and what the page shows of its output."""

    kind: str
    text: str
    name: str
    shown: list[str]


def steps_of(page: Path) -> list[Step]:
    """Return what a reader of a page does.

    A block with the word "sample" is only read. A block of Python that begins with "# NAME.py" is a file.
    """
    steps = []
    for block in (block for block in blocks_of(page) if block.info != "sample"):
        name = name_of(block)
        program = re.match(r"# (\w+\.py)\b", block.text)
        if block.language == "python" and program:
            steps.append(Step("file", block.text, program[1], []))
        elif block.language == "python":
            # A comment after a print is what it prints.
            printed = re.findall(r"^ *print\(.*\) +# (.*)$", block.text, re.MULTILINE)
            steps.append(Step("python", block.text, name, printed))
        elif block.language == "console":
            for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                command, *shown = part.splitlines()
                if not NOT_RUN.match(command):
                    steps.append(Step("console", command, name, shown))
    return steps


def run_steps(steps: list[Step], folder: Path, torchrun: str = "tests.torchrun") -> None:
    """Run steps in one session (`tests.doc_session`), and compare the output with what is shown."""
    programs = folder / "bin"
    programs.mkdir()
    # The environment of a framework has no commands of ours.
    for name, module in {"torchrun": torchrun, "shardkeep": "shardkeep"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec python -m {module} "$@"\n')
        (programs / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    paths = [str(programs), str(Path(sys.executable).parent), environment["PATH"]]
    (folder / "page").mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.doc_session"],
        input=json.dumps([step[:3] for step in steps]),
        cwd=folder / "page",
        env={**environment, "PATH": os.pathsep.join(paths), "PYTHONPATH": str(ROOT), "COLUMNS": "120"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for step, (output, code) in zip(steps, json.loads(done.stdout), strict=False):
        lines = output.splitlines()
        where = f"{step.name}: {step.text if step.kind == 'console' else step.kind}\n{output}"
        if step.kind == "python":
            assert code == 0, where
            assert lines[: len(step.shown)] == step.shown, where
        else:
            assert (code != 0) == any("error: " in line for line in step.shown), where
            assert not step.shown or re.fullmatch(transcript(step.shown), output.strip()), where


def transcript(shown: list[str]) -> str:
    """Return a pattern for the output that a page shows; "…" stands for a part of a line, or for lines."""
    lines = ["(?s:.*)" if line == "…" else re.escape(line).replace("…", ".*") for line in shown]
    return "\n".join(lines).strip().replace("(?s:.*)\n", r"(?s:.*\n)?")

"""The command ``shardkeep explain``."""

from __future__ import annotations

import sys

import click

from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.options.general import PATH, command, examples, json_option


@command
@examples("shardkeep explain train.log", "shardkeep explain train.log --json")
@click.argument("log", type=PATH)
@json_option
def explain(log: str, as_json: bool) -> int:
    """Name the cause of each known error in a log or traceback, and the fix.

    LOG is a text file, or - for standard input. Paths in it that exist on this machine are inspected;
    nothing is changed. What is not known is not guessed.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.explain import print_diagnoses
    from shardkeep.diagnosis import explain as explain_text

    found = explain_text(_read(log))
    print_json([one.to_dict() for one in found]) if as_json else print_diagnoses(found)
    return ExitCode.CLEAN


def _read(log: str) -> str:
    from shardkeep.files.durable import reading_from
    from shardkeep.files.kinds.urls import local_path

    # Logs of several processes are not always valid UTF-8.
    if log == "-":
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    path = local_path(log)
    with open(path, encoding="utf-8", errors="replace", newline="") as file, reading_from(path):
        return file.read()

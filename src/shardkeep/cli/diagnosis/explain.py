"""The command ``shardkeep explain``."""

from __future__ import annotations

import os
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
    if not found:
        _refuse_other_kinds(log)
    print_json([one.to_dict() for one in found]) if as_json else print_diagnoses(found)
    return ExitCode.CLEAN


def _refuse_other_kinds(path: str) -> None:
    """Raise for a compressed log and other files without text, in which nothing can be known."""
    from shardkeep.errors import FormatError
    from shardkeep.files.kinds.kind import identify

    if path == "-" or not os.path.isfile(path):
        return
    kind = identify(path)
    if not (kind.name == "empty" or kind.may_be_damaged_records or kind.described.startswith("plain text")):
        advice = f"; {kind.advice}" if kind.advice else ""
        raise FormatError(f"{path}: expected a text, found {kind.described}{advice}", path=path)


def _read(log: str) -> str:
    from shardkeep.files.durable import reading_from
    from shardkeep.files.kinds.urls import local_path

    # Logs of several processes are not always valid UTF-8.
    if log == "-":
        return sys.stdin.buffer.read().decode("utf-8", errors="replace")
    path = local_path(log)
    with open(path, encoding="utf-8", errors="replace", newline="") as file, reading_from(path):
        return file.read()

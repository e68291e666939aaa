"""Messages of errors and warnings: with options instead of arguments, and with the next command."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Sequence
from typing import Any, TextIO

import click

from shardkeep._paths_in_messages import repair_command
from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    FormatError,
    ShardkeepError,
    TruncatedFileError,
    one_line,
)

__all__ = ["as_foreign", "describe_error", "describe_os_error", "print_line", "print_warning"]

_ARGUMENT = re.compile(r"""\b([a-z_]+)=(?:"([^"\s]*)"|'([^'\s]*)'|(True|False|\d[\w.]*))?""")


def print_line(kind: str, message: str) -> None:
    """Print a message on one line of standard error."""
    with contextlib.suppress(OSError):  # a log on a full disk: the exit code remains
        click.echo(f"shardkeep: {kind}: {one_line(' '.join(message.split()))}", err=True)


def print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning without its place in the code; a `warnings.showwarning`."""
    print_line("warning", str(message))


def as_foreign(error: ShardkeepError) -> ShardkeepError:
    """Return a `FormatError` for a wrong start of a file that has no whole record; otherwise the error."""
    if not isinstance(error, CorruptRecordError) or error.path is None or error.offset_bytes != 0:
        return error
    from shardkeep.files.kinds.kind import require_kind
    from shardkeep.files.kinds.urls import is_url

    if is_url(error.path):  # its local copy is closed, and was examined
        return error
    from shardkeep.tfrecord.damage import is_foreign

    try:
        if is_foreign(error.path):
            require_kind(error.path, "tfrecord")
    except FormatError as better:
        return better
    except OSError:
        pass
    return error


def describe_error(error: ShardkeepError, command: click.Command | None, arguments: Sequence[str]) -> str:
    """Return the message of an error: its path, options instead of arguments, and after damage what to run.

    Parameters
    ----------
    error : ShardkeepError
    command : click.Command or None
        The command that failed.
    arguments : sequence of str
        Arguments of the call, as in ``sys.argv[1:]``.
    """
    message = str(error)
    if error.path is not None and one_line(error.path) not in message:
        message = f"{error.path}: {message}"
    options = _options(command)
    message = _ARGUMENT.sub(lambda found: _as_option(found, options), message)
    following = None
    if isinstance(error, CorruptDataError) and not (command and command.name == "repair"):
        following = _next_command(error, command, arguments)
    return f"{message}; {following}" if following else message


def describe_os_error(error: OSError) -> str:
    """Return the reason of an error of the system, with the file."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{_as_text(error.filename)}: {reason}" if error.filename is not None else reason


def _options(command: click.Command | None) -> dict[str, click.Option]:
    parameters = command.params if command else []
    return {one.name: one for one in parameters if isinstance(one, click.Option) and one.name}


def _as_option(found: re.Match[str], options: dict[str, click.Option]) -> str:
    """Return ``--exists replace`` for ``exists="replace"``; an argument without an option stays."""
    option = options.get(found[1])
    if option is None:
        return found[0]
    name = max(option.opts, key=len)
    value = found[2] or found[3] or found[4] or ""
    if option.is_flag:
        return option.secondary_opts[0] if value == "False" and option.secondary_opts else name
    return f"{name} {value}".rstrip()


def _next_command(
    error: CorruptDataError, command: click.Command | None, arguments: Sequence[str]
) -> str | None:
    """Return the command with which the user can continue after damage."""
    from shardkeep.files.kinds.kind import identify

    path, options = error.path, _options(command)
    # Nothing in the folder of an incomplete run is damaged; its message has the advice.
    if path is None or "shardkeep " in str(error) or not os.path.exists(path) or os.path.isdir(path):
        return None
    if "on_bad" in options:
        again = _with_option(arguments, command, "--on-bad", "skip")
        return None if again == list(arguments) else f"to continue: {_line(again)}"
    repair = f"to repair it: {repair_command(path)}"
    try:
        kind = identify(path)
    except OSError:
        return repair
    if kind.name == "hdf5":
        return repair
    is_damage = isinstance(error, (CorruptRecordError, TruncatedFileError))
    if not is_damage and error.record is None and kind.compression is None:
        return None  # a file that changes: the message has the advice
    again = _with_option(arguments, command, "--on-corrupt", "skip")
    if "on_corrupt" not in options or again == list(arguments):
        return repair
    if "repair" not in arguments and kind.compression is None and _is_repairable(error, path):
        again = _with_option(arguments, command, "--on-corrupt", "repair")
    return f"to continue: {_line(again)}; {repair}"


def _with_option(arguments: Sequence[str], command: click.Command | None, name: str, value: str) -> list[str]:
    """Return the arguments with this value of the option, directly after the command."""
    rest = list(arguments)
    while name in rest:
        at = rest.index(name)
        del rest[at : at + 2]
    rest = [one for one in rest if not one.startswith(f"{name}=")]
    if command is None or command.name not in rest:
        return rest
    at = rest.index(command.name) + 1
    return [*rest[:at], name, value, *rest[at:]]


def _line(arguments: Sequence[str]) -> str:
    return shlex.join(["shardkeep", *arguments])


def _is_repairable(error: CorruptDataError, path: str) -> bool:
    from shardkeep.tfrecord.damage import is_repairable

    return error.offset_bytes is not None and is_repairable(path, error.offset_bytes)


def _as_text(name: Any) -> str:
    return os.fsdecode(name) if isinstance(name, (str, bytes, os.PathLike)) else f"descriptor {name}"

"""Errors become one line and an exit code, whatever they are.

Covers `shardkeep.cli.options.general`.
"""

from __future__ import annotations

import errno
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import click
import pytest

from shardkeep.cli.app import app, run, stop_by_signal
from shardkeep.cli.options.general import command
from shardkeep.errors import CorruptRecordError, LockTimeoutError, NotFoundError


@pytest.fixture
def raising() -> Iterator[Callable[[BaseException], list[str]]]:
    """Return a function that makes a command which raises the given error."""

    def make(error: BaseException) -> list[str]:
        @command
        def fail() -> None:
            raise error

        app.add_command(fail, "fail")
        return ["fail"]

    yield make
    app.commands.pop("fail", None)


Raising = Callable[[BaseException], list[str]]


def after_a_stop(error: BaseException) -> BaseException:
    """Return the error as one to which a signal led."""
    hook = sys.unraisablehook
    try:
        stop_by_signal(signal.SIGINT, None)
    except KeyboardInterrupt as stop:
        error.__context__ = stop
    sys.unraisablehook = hook
    return error


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            CorruptRecordError("a.tfrecord: record 3 is damaged", path="a.tfrecord"),
            3,
            "a.tfrecord: record 3 is damaged",
        ),
        (CorruptRecordError("record 3 is damaged", path="a.tfrecord"), 3, "a.tfrecord: record 3 is damaged"),
        (NotFoundError("a\x1b[31m: gone"), 10, "a\\x1b[31m: gone"),
        (NotFoundError("nothing matches *.x"), 10, "nothing matches *.x"),
        (LockTimeoutError("held by pid 7"), 11, "held by pid 7"),
        (PermissionError(errno.EACCES, "Permission denied", "/root/x"), 2, "/root/x: Permission denied"),
        (
            FileNotFoundError(errno.ENOENT, "No such file or directory", b"x"),
            10,
            "x: No such file or directory",
        ),
        (BlockingIOError(errno.EAGAIN, "unable to lock file"), 11, "unable to lock file"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "No space left on device"),
        (OSError("odd"), 2, "odd"),
        (OSError(errno.EBADF, "Bad file descriptor", 7), 2, "descriptor 7: Bad file descriptor"),
        (click.UsageError("no"), 2, "no"),
        (click.ClickException("no"), 2, "no"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (click.Abort(), 130, "interrupted"),
        (after_a_stop(RuntimeError("release unlocked lock")), 130, "interrupted"),
        (after_a_stop(SystemError("seek returned a result with an exception set")), 130, "interrupted"),
    ],
)
def test_error_is_printed_in_one_line(
    raising: Raising, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, message: str
) -> None:
    assert run(raising(error)) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1] == f"shardkeep: error: {message}"
    assert "Traceback" not in err


def test_a_bug_asks_to_be_reported(raising: Raising, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(raising(ZeroDivisionError("division\nby zero"))) == 1
    err = capsys.readouterr().err
    assert err.startswith("shardkeep: error: ZeroDivisionError: division by zero (")
    assert "report it" in err
    assert "--debug" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("place", [0, 1])
def test_debug_shows_the_traceback(raising: Raising, capsys: pytest.CaptureFixture[str], place: int) -> None:
    arguments = raising(NotFoundError("gone"))
    arguments.insert(place, "--debug")
    assert run(arguments) == 10
    err = capsys.readouterr().err
    assert err.startswith("Traceback (most recent call last):")
    assert "raise error" in err
    assert err.endswith("shardkeep: error: gone\n")


def test_debug_does_not_outlive_the_call(raising: Raising, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = raising(NotFoundError("gone"))
    run(["--debug", *arguments])
    capsys.readouterr()
    run(arguments)
    assert capsys.readouterr().err == "shardkeep: error: gone\n"


def test_usage_names_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["info"]) == 2
    assert capsys.readouterr().err == (
        "Usage: shardkeep info [OPTIONS] PATHS...\n"
        "Try 'shardkeep info --help'.\n"
        "shardkeep: error: Missing argument 'PATHS...'.\n"
    )


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert run(arguments) == 0
    out = capsys.readouterr().out
    assert "Usage: shardkeep" in out
    assert "130  interrupted by Ctrl-C" in out


def test_no_command_is_overlooked(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["infos"]) == 2
    assert "No such command 'infos'" in capsys.readouterr().err


def test_a_path_without_the_right_to_read_is_not_a_wrong_call() -> None:
    types = [one.type for name in app.commands for one in app.commands[name].params]
    paths = [one for one in types if isinstance(one, click.Path)]
    assert len(paths) > 20 and not any(one.readable or one.exists for one in paths)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"shardkeep {version('shardkeep')}\n"


def test_python_m_is_the_command(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "shardkeep", "verify", str(tmp_path / "none")], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (10, "")
    assert done.stderr.startswith("shardkeep: error: ")

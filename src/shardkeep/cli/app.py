"""The command group, and the conversion of errors to messages and exit codes."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from typing import NoReturn

import click

from shardkeep.cli.audit import audit
from shardkeep.cli.cat import cat
from shardkeep.cli.collect import collect
from shardkeep.cli.concat import concat
from shardkeep.cli.demo import demo
from shardkeep.cli.diagnosis.bench import bench
from shardkeep.cli.diagnosis.doctor import doctor
from shardkeep.cli.diagnosis.explain import explain
from shardkeep.cli.diagnosis.repair import repair
from shardkeep.cli.diagnosis.view import view
from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.follow import follow
from shardkeep.cli.index import index
from shardkeep.cli.info import info
from shardkeep.cli.merge import merge
from shardkeep.cli.options.general import Settings, debug_option
from shardkeep.cli.output.errors import (
    as_foreign,
    describe_error,
    describe_os_error,
    print_line,
    print_warning,
)
from shardkeep.cli.pack import pack
from shardkeep.cli.runs.rollback import rollback
from shardkeep.cli.schema import schema
from shardkeep.cli.split import split
from shardkeep.cli.verify import verify
from shardkeep.errors import ShardkeepError

__all__ = ["app", "main", "run", "stop_by_signal"]

# Set by the script that a shell reads at its start.
_COMPLETE = "_SHARDKEEP_COMPLETE"


class _Group(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # The method of click truncates a summary that does not fit into the line.
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, one.get_short_help_str(limit=200)) for name, one in sorted(self.commands.items())]
            )

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Exit codes"):
            formatter.write_dl([(str(code.value), code.meaning) for code in ExitCode])


@click.group(
    cls=_Group,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="shardkeep", message="shardkeep %(version)s")
@debug_option
@click.pass_context
def app(context: click.Context) -> None:
    """Keep the files of distributed training whole.

    Many processes read one set of TFRecord shards exactly once, many processes write one HDF5
    result without corrupting it, and receipts prove which records were used.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for _command in (
    demo,
    info,
    cat,
    schema,
    verify,
    index,
    follow,
    split,
    concat,
    pack,
    repair,
    merge,
    rollback,
    collect,
    audit,
    explain,
    doctor,
    view,
    bench,
):
    app.add_command(_command)


class _Stop(KeyboardInterrupt):
    """Ctrl-C, SIGTERM or SIGHUP; all code that cleans up after Ctrl-C does so after the others, too."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def stop_by_signal(number: int, frame: object) -> None:
    """Raise the exception of a signal; the handler of signals while a command runs."""
    if number != signal.SIGINT:
        signal.signal(number, signal.SIG_IGN)  # `timeout` sends it twice, which would interrupt the clean-up
    sys.unraisablehook = _stop_later
    raise _Stop(number)


def _stop_later(lost: sys.UnraisableHookArgs) -> None:
    """Send the signal again if Python dropped its exception, as in the callback of a weak reference."""
    if not isinstance(lost.exc_value, _Stop):
        sys.__unraisablehook__(lost)
        return
    number = lost.exc_value.number
    signal.signal(number, stop_by_signal)
    threading.Timer(0.01, os.kill, (os.getpid(), number)).start()


def main() -> NoReturn:
    """Run the command of ``sys.argv`` and exit with its exit code; or complete the line of a shell."""
    wanted = os.environ.get(_COMPLETE)
    if wanted:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(app, {}, "shardkeep", _COMPLETE, wanted))
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command; write the message of an error to standard error, with ``--debug`` also the traceback.

    Parameters
    ----------
    arguments : sequence of str
        Arguments as in ``sys.argv[1:]``.

    Returns
    -------
    int
        An exit code (see `ExitCode`).
    """
    settings = Settings()
    try:
        # Not app.main(), which handles a broken pipe and Ctrl-C differently.
        with (
            warnings.catch_warnings(),
            app.make_context("shardkeep", list(arguments), obj=settings) as context,
        ):
            warnings.showwarning = print_warning
            result = app.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.UsageError as error:
        return _usage(error)
    except click.ClickException as error:
        return _fail(error.format_message(), ExitCode.USAGE, settings)
    except (click.Abort, KeyboardInterrupt) as stop:
        return _stopped(stop, settings)
    except BrokenPipeError:
        return _on_broken_pipe()
    except ShardkeepError as error:
        error = as_foreign(error)
        _print_table(error)
        command = app.get_command(context, context.invoked_subcommand or "")
        return _fail(describe_error(error, command, arguments), ExitCode(error.exit_code), settings)
    except OSError as error:
        return _fail(describe_os_error(error), _code_of(error), settings)
    except Exception as error:
        # Locks of `threading` are released in Python code: a signal there can end in "release unlocked lock".
        # One in a callback of HDF5 can end in "returned a result with an exception set" of the next callback.
        if isinstance(error, (RuntimeError, SystemError)) and (signalled := _stop_before(error)) is not None:
            return _stopped(signalled, settings)
        name = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        hint = "this is a bug of Shardkeep; please report it with what --debug prints"
        return _fail(f"{name} ({hint})", ExitCode.BUG, settings)
    return result if isinstance(result, int) else ExitCode.CLEAN


def _stopped(stop: BaseException, settings: Settings) -> int:
    code = ExitCode(128 + getattr(stop, "number", signal.SIGINT))
    return _fail("interrupted" if code is ExitCode.INTERRUPTED else code.meaning, code, settings)


def _stop_before(error: BaseException) -> _Stop | None:
    """Return the exception of a signal whose handling led to an error; None without one."""
    context = error.__context__
    while context is not None and not isinstance(context, _Stop):
        context = context.__context__
    return context


def _fail(message: str, code: ExitCode, settings: Settings) -> int:
    if settings.debug and sys.exc_info()[0] is not None:
        traceback.print_exc()
    print_line("error", message)
    return code


def _usage(error: click.UsageError) -> int:
    context = error.ctx
    if context is not None:
        click.echo(context.get_usage(), err=True)
        click.echo(f"Try '{context.command_path} --help'.", err=True)
    click.echo(f"shardkeep: error: {error.format_message()}", err=True)
    return ExitCode.USAGE


def _print_table(error: ShardkeepError) -> None:
    """Print the table of an error about many files that differ."""
    rows = getattr(error, "table", ())
    if rows:
        from shardkeep.cli.output.console import console
        from shardkeep.cli.output.merge import schema_table

        console(stderr=True).print(schema_table(rows))


def _code_of(error: OSError) -> ExitCode:
    if isinstance(error, FileNotFoundError):
        return ExitCode.NOT_FOUND
    # HDF5 reports a file that is locked by another process as EAGAIN.
    return ExitCode.LOCKED if isinstance(error, BlockingIOError) else ExitCode.USAGE


def _on_broken_pipe() -> int:
    # `shardkeep cat … | head` is not an error. Python flushes standard output at exit and would report the
    # broken pipe again, so the rest goes to /dev/null.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ExitCode.CLEAN

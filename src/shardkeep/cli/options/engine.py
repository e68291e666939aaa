"""Options that choose where the tasks of a command run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from shardkeep.cli.options.general import choice_option

__all__ = ["engine_options"]


def engine_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--engine`` and ``--address``; the function gets the open engine as ``executor``.

    This must be the decorator next to the function: with MPI all processes but one serve here until the
    function has ended in that one.
    """

    @functools.wraps(function)
    def run(*arguments: Any, engine: Any, address: str | None, **options: Any) -> Any:
        if engine == "local" and address is None:
            return function(*arguments, executor=None, **options)
        from shardkeep.jobs.engine import engine as open_engine

        with open_engine(engine, address=address) as executor:
            return function(*arguments, executor=executor, **options)

    for option in (
        click.option(
            "--address",
            metavar="ADDRESS",
            help="Scheduler of Dask or cluster of Ray; by default a new one on this machine.",
        ),
        choice_option(
            "--engine",
            ["local", "dask", "ray", "mpi"],
            "Where the files are processed: in threads, or by the workers of an engine.",
        ),
    ):
        run = option(run)
    return run

"""The bar that long work shows meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from shardkeep.cli.output.console import console

__all__ = ["watched"]


@contextlib.contextmanager
def watched(
    doing: str, *, files: bool = False, at_end: str | None = None
) -> Iterator[Callable[[int, int], None]]:
    """Show a bar with the time left on a terminal's standard error; give what moves it.

    Parameters
    ----------
    doing : str
        What is written in front of it.
    files : bool
        The numbers are files, not bytes.
    at_end : str, optional
        What is still done when the last number has come.
    """
    out = console(stderr=True)
    numbers: list[ProgressColumn] = (
        [MofNCompleteColumn()] if files else [DownloadColumn(binary_units=True), TransferSpeedColumn()]
    )
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        *numbers,
        TimeRemainingColumn(compact=True),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    )
    with progress:
        task = progress.add_task(doing, total=None)

        def move(done: int, total: int) -> None:
            told = at_end if at_end and done >= total else doing
            progress.update(task, completed=done, total=total, description=told)

        yield move

"""Progress bar of long work."""

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
    """Show a progress bar with the remaining time, if standard error is a terminal.

    Parameters
    ----------
    doing : str
        Text before the bar.
    files : bool
        True if the numbers count files, not bytes.
    at_end : str, optional
        Text for the work after the last byte or file.

    Yields
    ------
    callable
        Moves the bar, as ``move(done, total)``.
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
            text = at_end if at_end and done >= total else doing
            progress.update(task, completed=done, total=total, description=text)

        yield move

"""Progress bar of long work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from shardkeep.cli.output.console import console

__all__ = ["watched"]


@contextlib.contextmanager
def watched(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar with the remaining time, if standard error is a terminal.

    Parameters
    ----------
    doing : str
        Text before the bar.

    Yields
    ------
    callable
        Moves the bar, as ``move(done, total)``.
    """
    out = console(stderr=True)
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(compact=True),
        console=out,
        transient=True,
        # FORCE_COLOR makes a file a terminal to Rich, and each frame of the bar would be a line of a log.
        disable=not (out.is_terminal and out.file.isatty()),
    )
    with progress:
        task = progress.add_task(doing, total=None, visible=False)  # until the size is known

        yield _Bar(progress, task, doing)


class _Bar:
    """The function that moves the bar, and its text."""

    def __init__(self, progress: Progress, task: TaskID, doing: str) -> None:
        self._progress, self._task, self._doing = progress, task, doing

    def __call__(self, done: int, total: int) -> None:
        self._progress.update(self._task, completed=done, total=total, description=self._doing, visible=True)

    def describe(self, name: str) -> None:
        """Show the name of the part that begins."""
        self._doing = name

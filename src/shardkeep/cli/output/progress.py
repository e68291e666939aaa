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
    TaskID,
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
        # FORCE_COLOR makes a file a terminal to Rich, and each frame of the bar would be a line of a log.
        disable=not (out.is_terminal and out.file.isatty()),
    )
    with progress:
        task = progress.add_task(doing, total=None, visible=False)  # until the size is known

        yield _Bar(progress, task, doing, at_end)


class _Bar:
    """The function that moves the bar, and its text."""

    def __init__(self, progress: Progress, task: TaskID, doing: str, at_end: str | None) -> None:
        self._progress, self._task, self._doing, self._at_end = progress, task, doing, at_end

    def __call__(self, done: int, total: int) -> None:
        text = self._at_end if self._at_end and done >= total else self._doing
        self._progress.update(self._task, completed=done, total=total, description=text, visible=True)

    def describe(self, name: str) -> None:
        """Show the name of the part that begins."""
        self._doing = name

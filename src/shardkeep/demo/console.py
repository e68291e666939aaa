"""Terminal output of the demo: progress bars during the run, a table at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from shardkeep.demo.report import Death, DemoReport
from shardkeep.quantities import counted

__all__ = ["ProgressObserver", "TerminalProgress", "print_report", "show_progress"]


class ProgressObserver:
    """Receiver of the progress of a run; this base class ignores it."""

    def update_packing(self, done: int, total: int) -> None:
        """Report that `done` of `total` images are packed."""

    def begin_steps(self, begin: int, end: int) -> None:
        """Report that a world starts after step `begin` and will run to step `end`."""

    def finish_step(self, step: int, epoch: int, loss: float) -> None:
        """Report that every rank has computed a step."""

    def report_death(self, death: Death) -> None:
        """Report that a worker was killed and the run resumes from a checkpoint."""

    def update_finishing(self, done: int, total: int, activity: str) -> None:
        """Report that `done` of `total` activities after the training are done and `activity` begins."""


class TerminalProgress(ProgressObserver):
    """Progress as Rich progress bars, and each death as a line of text."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console, self._progress = console, progress
        self._packing: TaskID | None = None
        self._training: TaskID | None = None
        self._finishing: TaskID | None = None

    def update_packing(self, done: int, total: int) -> None:
        """See `ProgressObserver`."""
        if self._packing is None:
            self._packing = self._progress.add_task("pack images", total=total)
        self._progress.update(self._packing, completed=done, refresh=done == total)

    def begin_steps(self, begin: int, end: int) -> None:
        """See `ProgressObserver`."""
        if self._training is None:
            self._training = self._progress.add_task("train", total=end)
        self._progress.update(self._training, completed=begin, total=end, refresh=True)

    def finish_step(self, step: int, epoch: int, loss: float) -> None:
        """See `ProgressObserver`."""
        if self._training is not None:
            self._progress.update(
                self._training, completed=step, description=f"train, epoch {epoch}, loss {loss:.2f}"
            )

    def report_death(self, death: Death) -> None:
        """See `ProgressObserver`."""
        self._console.print(
            f"[bold red]SIGKILL[/] to rank {death.rank} (pid {death.pid}) at step {death.step}: "
            f"resumed from step {death.resumed_step} with {counted(death.workers_after, 'rank')}",
            highlight=False,
        )

    def update_finishing(self, done: int, total: int, activity: str) -> None:
        """See `ProgressObserver`."""
        if self._finishing is None:
            self._finishing = self._progress.add_task(activity, total=total)
        self._progress.update(self._finishing, completed=done, description=activity, refresh=True)


@contextmanager
def show_progress(console: Console | None) -> Iterator[ProgressObserver]:
    """Show progress bars on `console` while the body runs; none without a console or a terminal."""
    if console is None:
        yield ProgressObserver()
        return
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with progress:
        yield TerminalProgress(console, progress)


def print_report(console: Console, report: DemoReport) -> None:
    """Print the table of results, then every check with its finding."""
    table = Table(title="shardkeep demo", title_justify="left", show_header=False, min_width=60)
    table.add_column("what", style="bold", no_wrap=True)
    table.add_column("value", overflow="fold")
    for name, value in report.rows():
        table.add_row(name, Text(value))
    table.add_section()
    for check in report.checks:
        verdict = ("ok  ", "bold green") if check.ok else ("FAILED  ", "bold red")
        table.add_row(check.name, Text.assemble(verdict, check.finding))
    console.print(table)
    # Not wrapped, so that paths can be copied.
    for line in (f"see: {report.output}/report.html", f"audit again: {report.commands()[0][0]}"):
        console.print(line, highlight=False, soft_wrap=True, markup=False)

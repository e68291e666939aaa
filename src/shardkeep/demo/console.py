"""What a person sees in the terminal: bars while the demo works, a table at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from shardkeep.demo.report import Death, DemoReport, plural

__all__ = ["Watch", "WatchOnTerminal", "print_report", "watching"]


class Watch:
    """Is told how far the run is; this one keeps it to itself."""

    def packing(self, done: int, total: int) -> None:
        """`done` of `total` images are packed."""

    def steps(self, begin: int, end: int) -> None:
        """A world stands at step `begin` and will go on to `end`."""

    def step(self, step: int, epoch: int, loss: float) -> None:
        """A step of every rank is computed."""

    def died(self, death: Death) -> None:
        """A worker was killed and the run has gone back to a checkpoint."""

    def finishing(self, done: int, total: int, doing: str) -> None:
        """Training is over; `done` of `total` things are done and `doing` begins."""


class WatchOnTerminal(Watch):
    """Shows it as Rich progress bars, and as plain lines what is worth keeping."""

    def __init__(self, console: Console, progress: Progress) -> None:
        self._console, self._progress = console, progress
        self._packing: TaskID | None = None
        self._training: TaskID | None = None
        self._finishing: TaskID | None = None

    def packing(self, done: int, total: int) -> None:
        """See `Watch`."""
        if self._packing is None:
            self._packing = self._progress.add_task("pack images", total=total)
        self._progress.update(self._packing, completed=done, refresh=done == total)

    def steps(self, begin: int, end: int) -> None:
        """See `Watch`."""
        if self._training is None:
            self._training = self._progress.add_task("train", total=end)
        self._progress.update(self._training, completed=begin, total=end, refresh=True)

    def step(self, step: int, epoch: int, loss: float) -> None:
        """See `Watch`."""
        if self._training is not None:
            self._progress.update(
                self._training, completed=step, description=f"train, epoch {epoch}, loss {loss:.2f}"
            )

    def died(self, death: Death) -> None:
        """See `Watch`."""
        self._console.print(
            f"[bold red]SIGKILL[/] to worker {death.rank} (pid {death.pid}) at step {death.step}: "
            f"on from step {death.resumed_step} with {plural(death.workers_after, 'worker')}",
            highlight=False,
        )

    def finishing(self, done: int, total: int, doing: str) -> None:
        """See `Watch`."""
        if self._finishing is None:
            self._finishing = self._progress.add_task(doing, total=total)
        self._progress.update(self._finishing, completed=done, description=doing, refresh=True)


@contextmanager
def watching(console: Console | None) -> Iterator[Watch]:
    """Show bars on `console` while the body runs; none without a console or a terminal."""
    if console is None:
        yield Watch()
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
        yield WatchOnTerminal(console, progress)


def print_report(console: Console, report: DemoReport) -> None:
    """Print the table and, below it, every check with its finding."""
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
    # Not wrapped: paths are to be copied.
    for line in (f"see: {report.output}/report.html", f"prove it again: {report.commands()[0][0]}"):
        console.print(line, highlight=False, soft_wrap=True, markup=False)

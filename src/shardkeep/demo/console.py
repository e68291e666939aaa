"""Terminal output of the demo: progress bars during the run, a table at the end."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from shardkeep.demo.report import Death, DemoReport
from shardkeep.quantities import counted

__all__ = ["DemoProgress", "print_report"]


class DemoProgress:
    """Progress of a run: bars on a terminal, and each death as a line of text; nothing without a console.

    Parameters
    ----------
    console : rich.console.Console, optional
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(quiet=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=console is None or not console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> DemoProgress:
        self._progress.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()

    def update_packing(self, done: int, total: int) -> None:
        """Report that `done` of `total` images are packed."""
        self._update("pack images", done, total=total, refresh=done == total)

    def begin_steps(self, begin: int, end: int) -> None:
        """Report that a world starts after step `begin` and will run to step `end`."""
        self._update("train", begin, total=end, refresh=True)

    def finish_step(self, step: int, epoch: int, loss: float) -> None:
        """Report that every rank has computed a step."""
        self._update("train", step, description=f"train, epoch {epoch}, loss {loss:.2f}")

    def report_death(self, death: Death) -> None:
        """Report that a worker was killed and the run resumes from a checkpoint."""
        self._console.print(
            f"[bold red]SIGKILL[/] to rank {death.rank} (pid {death.pid}) at step {death.step}: "
            f"resumed from step {death.resumed_step} with {counted(death.workers_after, 'rank')}",
            highlight=False,
        )

    def update_finishing(self, done: int, total: int, activity: str) -> None:
        """Report that `done` of `total` activities after the training are done and `activity` begins."""
        self._update("finish", done, total=total, description=activity, refresh=True)

    def _update(self, name: str, done: int, **changes: Any) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(
                changes.get("description", name), total=changes["total"]
            )
        self._progress.update(self._tasks[name], completed=done, **changes)


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

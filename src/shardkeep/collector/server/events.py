"""What a collector tells people and programs while it works: lines, a progress line, JSON, metrics."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from shardkeep.collector.server.committer import Committer
    from shardkeep.collector.store.store import Store
    from shardkeep.errors import ShardkeepError

__all__ = ["Events", "Report"]

Report = Literal["none", "problems", "lines", "progress", "json"]

_PROBLEMS = {"recovered", "refused", "warning", "failed", "resumed"}
# A client with the wrong key comes again many times a second, for as long as it runs.
_SAY_AGAIN_AFTER_S = 60.0
_REFUSALS_A_MINUTE = 100
_USUAL_COLUMNS = 80
# While a disk is full, the file fails, is opened again, and all clients come back, every second or two.
_GOES_ON_AFTER_S = 5.0


class Events:
    """Where everything worth telling goes.

    Parameters
    ----------
    out : text file
    how : {"none", "problems", "lines", "progress", "json"}
        Nothing; a line for what somebody should know of (a repair, who was refused, a full disk); one for
        each event; the same with a line of progress that is written over; or one JSON object per line,
        progress included.
    every_s : float
        How often progress is told.
    metrics : callable, optional
        Given the numbers of each progress report.
    """

    def __init__(
        self,
        out: TextIO | None,
        how: Report = "none",
        *,
        every_s: float = 1.0,
        metrics: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._out = out
        self._how = how if out is not None else "none"
        self._every_s = every_s
        self._metrics = metrics
        self._began = self._told_at = time.monotonic()
        self._told = (0, 0)
        self._is_open_line = False
        self._refusals: dict[tuple[str, str], int] = {}
        self._refusals_since = self._began
        self._failing: str | None = None
        self._failed_at = self._failure_told_at = self._began
        self.refused_count = self.repeated_count = 0

    def serve_metrics(self, port: int) -> None:
        """Also give the numbers to Prometheus."""
        from shardkeep.collector.server.metrics import serve

        self._metrics = metrics = serve(port)
        url = f"http://127.0.0.1:{metrics.port}/metrics"
        self._tell("metrics", f"metrics on {url}", url=url)

    def opened(self, store: Store) -> None:
        """The file is open."""
        if self._failing is not None:
            return
        found = store.recovery
        if found is None:
            text = f"{store.path}: {_rows(store.rows) or 'no rows yet'}"
            self._tell("opened", text, path=store.path, rows=store.rows)
            return
        text = (
            f"{store.path} was not closed: brought {_counted(found.commits, 'commit')} from the log into it"
        )
        if found.dropped_bytes:
            text += f", cut off {found.dropped_bytes:,} bytes that no commit spoke of"
        text += f"; it has {_rows(store.rows) or 'no rows'}"
        self._tell(
            "recovered",
            text,
            path=store.path,
            rows=store.rows,
            commits=found.commits,
            dropped_bytes=found.dropped_bytes,
        )
        if found.after_power_cut:
            self.warn(
                "the machine was started anew since, and --durability flush promises nothing then: "
                f"look at {store.path} with shardkeep verify"
            )

    def listening(self, address: str) -> None:
        """Clients may come."""
        self._tell("listening", f"listening on {address}", address=address)

    def joined(self, who: str, clients: int) -> None:
        """A client came."""
        if self._failing is None:
            self._tell("joined", f"{who} joined", who=who, clients=clients)

    def left(self, who: str, clients: int) -> None:
        """A client said goodbye."""
        self._tell("left", f"{who} left", who=who, clients=clients)

    def lost(self, who: str, clients: int) -> None:
        """A client was not heard of for a while."""
        self._tell(
            "lost",
            f"{who} was not heard of for a while: let go until it comes again",
            who=who,
            clients=clients,
        )

    def refused(self, who: str, why: str) -> None:
        """Somebody sent what is not taken."""
        self.refused_count += 1
        self._tell_again()
        known = (who, why) in self._refusals
        if known or len(self._refusals) < _REFUSALS_A_MINUTE:
            self._refusals[who, why] = self._refusals.get((who, why), -1) + 1
            if not known:
                self._tell("refused", f"refused {who}: {why}", who=who, why=why)

    def _tell_again(self) -> None:
        """Say how often the same was refused once more, when that was a while ago."""
        now = time.monotonic()
        if now < self._refusals_since + _SAY_AGAIN_AFTER_S:
            return
        seconds = round(now - self._refusals_since)
        refusals, self._refusals, self._refusals_since = self._refusals, {}, now
        for (who, why), times in refusals.items():
            if times:
                text = f"refused {who} {times:,} times more within {seconds} s: {why}"
                self._tell("refused", text, who=who, why=why, times=times)

    def unknown(self, who: str) -> None:
        """Rows came from a client of before: it is asked who it is, and sends them again."""
        self._tell("unknown", f"{who} has to say who it is: its rows come again", who=who)

    def repeated(self, who: str) -> None:
        """A batch came that is stored already: counted only."""
        self.repeated_count += 1

    def warn(self, text: str) -> None:
        """Something that somebody should look at."""
        self._tell("warning", f"warning: {text}", text=text)

    def failed(self, error: ShardkeepError) -> None:
        """Nothing can be stored; the same is told once a minute."""
        now, text = time.monotonic(), str(error)
        if self._failing != text or now >= self._failure_told_at + _SAY_AGAIN_AFTER_S:
            self._failure_told_at = now
            line = f"{text}; trying again every second"
            self._tell("failed", line, error=type(error).__name__, text=text)
        self._failing, self._failed_at = text, now

    def _tell_that_it_goes_on(self, disk: Committer, clients: int) -> None:
        if disk.failure is None and time.monotonic() > self._failed_at + _GOES_ON_AFTER_S:
            self._failing = None
            rows = _rows(disk.store.rows) or "no rows"
            text = f"{disk.store.path} can be written again: {rows}, {_counted(clients, 'client')}"
            self._tell("resumed", text, path=disk.store.path, rows=disk.store.rows, clients=clients)

    def stopping(self, reason: str, clients: int) -> None:
        """It was told to stop."""
        self._tell(
            "stopping",
            f"stopping ({reason})" + (f": {_counted(clients, 'client')} told to finish" if clients else ""),
            reason=reason,
            clients=clients,
        )

    def finished(self, report: dict[str, Any]) -> None:
        """The file is closed."""
        self._tell("finished", f"{report['path']} is closed: {_rows(report['rows']) or 'no rows'}", **report)

    def progress(self, disk: Committer, clients: int, credit_bytes: int) -> None:
        """Tell how it goes, if it is time."""
        if self._refusals:
            self._tell_again()
        if self._failing is not None:
            self._tell_that_it_goes_on(disk, clients)
        now = time.monotonic()
        passed = now - self._told_at
        if passed < self._every_s or (self._how not in ("progress", "json") and self._metrics is None):
            return
        rows, size = disk.rows - self._told[0], disk.bytes - self._told[1]
        self._told_at, self._told = now, (disk.rows, disk.bytes)
        age = None if disk.last_commit is None else now - disk.last_commit
        values = {
            "rows": disk.rows,
            "bytes": disk.bytes,
            "rows_per_s": round(rows / passed, 1),
            "mb_per_s": round(size / passed / 1e6, 2),
            "clients": clients,
            "queued_bytes": disk.queued_bytes,
            "credit_bytes": credit_bytes,
            "commits": disk.commits,
            "last_commit_s_ago": None if age is None else round(age, 1),
            "refused": self.refused_count,
            "repeated": self.repeated_count,
        }
        if self._metrics is not None:
            self._metrics(values)
        if self._how == "json" and (rows or size):
            self._write_json("progress", values)
        elif self._how == "progress":
            # In the order in which they are left out where the line is too narrow, the last one first.
            parts = [
                f"{values['rows_per_s']:,.0f} rows/s",
                f"{values['mb_per_s']:,.1f} MB/s",
                _counted(clients, "client"),
                f"{disk.queued_bytes / 1e6:.1f} MB queued",
                "no commit yet" if age is None else f"commit {age:.0f} s ago",
                f"{disk.rows:,} rows",
            ]
            self._write(f"\r\033[K{fitting(parts, self._columns() - 1)}")
            self._is_open_line = True

    def _columns(self) -> int:
        # Asked each time: windows are made wider and narrower.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            assert self._out is not None
            return os.get_terminal_size(self._out.fileno()).columns or _USUAL_COLUMNS
        return _USUAL_COLUMNS

    def _tell(self, event: str, line: str, **values: Any) -> None:
        if self._how == "none" or (self._how == "problems" and event not in _PROBLEMS):
            return
        if self._how == "json":
            self._write_json(event, values)
            return
        start = "\r\033[K" if self._is_open_line else ""
        self._is_open_line = False
        text = line if line.isprintable() else line.encode("unicode_escape").decode()
        self._write(f"{start}shardkeep: {text}\n")

    def _write_json(self, event: str, values: dict[str, Any]) -> None:
        self._write(json.dumps({"time": round(time.time(), 3), "event": event, **values}) + "\n")

    def _write(self, text: str) -> None:
        assert self._out is not None
        # Who reads the log may go away, and its disk may be full: no reason to stop collecting.
        with contextlib.suppress(OSError):
            self._out.write(text)
            self._out.flush()


def fitting(parts: list[str], columns: int) -> str:
    """Return a line of as many of the parts as there is room for, the first ones before the others.

    Examples
    --------
    >>> fitting(["5 rows/s", "1 client", "no commit yet"], 20)
    '5 rows/s  1 client'
    """
    while len(parts) > 1 and len("  ".join(parts)) > columns:
        parts = parts[:-1]
    return "  ".join(parts)[: max(columns, 0)]


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" + ("" if count == 1 else "s")


def _rows(rows: dict[str, int]) -> str:
    shown = [f"{count:,} rows of {name!r}" for name, count in list(rows.items())[:4]]
    more = [f"{len(rows) - 4} more datasets"] if len(rows) > 4 else []
    return ", ".join(shown + more)

"""Reports of a collector while it runs: lines for people, JSON for programs, metrics for Prometheus."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

from shardkeep._paths_in_messages import shown
from shardkeep.errors import one_line
from shardkeep.quantities import counted

if TYPE_CHECKING:
    from shardkeep.collector.store.store import Store
    from shardkeep.errors import ShardkeepError

__all__ = ["Counters", "Events", "Report"]

Report = Literal["none", "problems", "lines", "progress", "json"]

_PROBLEMS = {"recovered", "refused", "warning", "failed", "resumed"}
# A client with a wrong key connects again many times a second, for as long as it runs.
_REPEAT_AFTER_S = 60.0
_REFUSALS_PER_MINUTE = 100
_USUAL_COLUMNS = 80
# While a disk is full, the file fails, is opened again, and all clients come back, every second or two.
_RESUMED_AFTER_S = 5.0


@dataclass
class Counters:
    """Numbers of a collector since its start."""

    rows: int = 0
    bytes: int = 0
    queued_bytes: int = 0
    commits: int = 0
    last_commit: float | None = None


class Events:
    """The output of everything that a collector reports.

    Parameters
    ----------
    out : text file or None
    report : {"none", "problems", "lines", "progress", "json"}
        Nothing; a line for each event that needs attention (a repair, a refusal, a full disk); a line for
        each event; the same with one line of progress that is overwritten; or one JSON object per line,
        progress included.
    every_s : float
        Time between two reports of progress.
    metrics : callable, optional
        Called with the numbers of each report of progress.
    """

    def __init__(
        self,
        out: TextIO | None,
        report: Report = "none",
        *,
        every_s: float = 1.0,
        metrics: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._out = out
        self._report = report if out is not None else "none"
        self._every_s = every_s
        self._metrics = metrics
        began = time.monotonic()
        self._reported_at, self._reported = began, (0, 0)
        self._is_line_open = False
        self._refusals: dict[tuple[str, str], int] = {}
        self._refusals_since = began
        self._failure: str | None = None
        self._failed_at = self._failure_reported_at = began
        self.refused_count = self.repeated_count = 0

    def serve_metrics(self, port: int) -> None:
        """Also serve the numbers to Prometheus."""
        from shardkeep.collector.server.metrics import Metrics

        self._metrics = metrics = Metrics(port)
        url = f"http://127.0.0.1:{metrics.port}/metrics"
        self._event("metrics", f"metrics on {url}", url=url)

    # -- the file ------------------------------------------------------------------------------------------

    def opened(self, store: Store) -> None:
        """Report that the file is open."""
        if self._failure is not None:
            return
        path, repair = shown(store.path), store.recovery
        if repair is None:
            self._event("opened", f"{path}: {_rows(store.rows, 'no rows yet')}", path=path, rows=store.rows)
            return
        text = f"{path} was not closed: {counted(repair.commits, 'commit')} of the log were applied to it"
        if repair.dropped_bytes:
            text += f", {repair.dropped_bytes:,} bytes after the last commit were cut off"
        values = {"commits": repair.commits, "dropped_bytes": repair.dropped_bytes}
        self._event("recovered", f"{text}; it has {_rows(store.rows)}", path=path, rows=store.rows, **values)
        if repair.after_power_cut:
            self.warn(
                "the machine was rebooted since, and --durability flush promises nothing then: "
                f"check {path} with shardkeep verify"
            )

    def failed(self, error: ShardkeepError) -> None:
        """Report that nothing can be stored; the same failure once a minute."""
        now, text = time.monotonic(), str(error)
        if self._failure != text or now >= self._failure_reported_at + _REPEAT_AFTER_S:
            self._failure_reported_at = now
            line = f"{text}; trying again every second"
            self._event("failed", line, error=type(error).__name__, text=text)
        self._failure, self._failed_at = text, now

    def working(self, store: Store, clients: int) -> None:
        """Report, after a failure, that the file can be written again."""
        if self._failure is not None and time.monotonic() > self._failed_at + _RESUMED_AFTER_S:
            self._failure = None
            path = shown(store.path)
            text = f"{path} can be written again: {_rows(store.rows)}, {counted(clients, 'client')}"
            self._event("resumed", text, path=path, rows=store.rows, clients=clients)

    def uploading(self, url: str) -> None:
        """Report that the file is closed, and will replace an object."""
        self._event("uploading", f"uploading {url}", url=url)

    def finished(self, report: dict[str, Any]) -> None:
        """Report that the file is closed."""
        self._event("finished", f"{report['path']} is closed: {_rows(report['rows'])}", **report)

    # -- clients -------------------------------------------------------------------------------------------

    def listening(self, address: str) -> None:
        """Report that clients can connect."""
        self._event("listening", f"listening on {address}", address=address)

    def joined(self, client: str, clients: int) -> None:
        """Report a new client."""
        if self._failure is None:
            self._event("joined", f"{client} joined", who=client, clients=clients)

    def left(self, client: str, clients: int) -> None:
        """Report a goodbye."""
        self._event("left", f"{client} left", who=client, clients=clients)

    def lost(self, client: str, clients: int) -> None:
        """Report a client that is silent."""
        text = f"{client} was silent for a while: it is not waited for until it comes again"
        self._event("lost", text, who=client, clients=clients)

    def refused(self, client: str, reason: str) -> None:
        """Report a message that was not accepted; the same one once a minute, with its number."""
        self.refused_count += 1
        self._repeat_refusals()
        known = (client, reason) in self._refusals
        if known or len(self._refusals) < _REFUSALS_PER_MINUTE:
            self._refusals[client, reason] = self._refusals.get((client, reason), -1) + 1
            if not known:
                self._event("refused", f"refused {client}: {reason}", who=client, why=reason)

    def _repeat_refusals(self) -> None:
        now = time.monotonic()
        if now < self._refusals_since + _REPEAT_AFTER_S:
            return
        seconds = round(now - self._refusals_since)
        refusals, self._refusals, self._refusals_since = self._refusals, {}, now
        for (client, reason), times in refusals.items():
            if times:
                text = f"refused {client} {times:,} times more within {seconds} s: {reason}"
                self._event("refused", text, who=client, why=reason, times=times)

    def unknown(self, client: str) -> None:
        """Report rows on a connection without a HELLO."""
        self._event("unknown", f"{client} has to introduce itself: it sends its rows again", who=client)

    def repeated(self) -> None:
        """Count a batch that was stored before."""
        self.repeated_count += 1

    def warn(self, text: str) -> None:
        """Report something that needs attention."""
        self._event("warning", f"warning: {text}", text=text)

    def stopping(self, reason: str, clients: int) -> None:
        """Report that the collector is about to end."""
        asked = f": {counted(clients, 'client')} asked to finish" if clients else ""
        self._event("stopping", f"stopping ({reason}){asked}", reason=reason, clients=clients)

    # -- progress ------------------------------------------------------------------------------------------

    def progress(self, counters: Counters, clients: int, credit_bytes: int) -> None:
        """Report the progress, if it is time."""
        if self._refusals:
            self._repeat_refusals()
        now = time.monotonic()
        passed = now - self._reported_at
        if passed < self._every_s or (self._report not in ("progress", "json") and self._metrics is None):
            return
        rows, size = counters.rows - self._reported[0], counters.bytes - self._reported[1]
        self._reported_at, self._reported = now, (counters.rows, counters.bytes)
        age = None if counters.last_commit is None else now - counters.last_commit
        values = {
            "rows": counters.rows,
            "bytes": counters.bytes,
            "rows_per_s": round(rows / passed, 1),
            "mb_per_s": round(size / passed / 1e6, 2),
            "clients": clients,
            "queued_bytes": counters.queued_bytes,
            "credit_bytes": credit_bytes,
            "commits": counters.commits,
            "last_commit_s_ago": None if age is None else round(age, 1),
            "refused": self.refused_count,
            "repeated": self.repeated_count,
        }
        if self._metrics is not None:
            self._metrics(values)
        if self._report == "json" and (rows or size):
            self._write_json("progress", values)
        elif self._report == "progress":
            # On a narrow terminal the last ones are omitted first.
            parts = [
                f"{values['rows_per_s']:,.0f} rows/s",
                f"{values['mb_per_s']:,.1f} MB/s",
                counted(clients, "client"),
                f"{counters.queued_bytes / 1e6:.1f} MB queued",
                "no commit yet" if age is None else f"commit {age:.0f} s ago",
                f"{counters.rows:,} rows",
            ]
            self._write(f"\r\033[K{_fitting(parts, self._columns() - 1)}")
            self._is_line_open = True

    def _columns(self) -> int:
        # Each time: the user may resize the window.
        with contextlib.suppress(OSError, ValueError, AttributeError):
            assert self._out is not None
            return os.get_terminal_size(self._out.fileno()).columns or _USUAL_COLUMNS
        return _USUAL_COLUMNS

    def _event(self, event: str, line: str, **values: Any) -> None:
        if self._report == "none" or (self._report == "problems" and event not in _PROBLEMS):
            return
        if self._report == "json":
            self._write_json(event, values)
            return
        start = "\r\033[K" if self._is_line_open else ""
        self._is_line_open = False
        self._write(f"{start}shardkeep: {one_line(line)}\n")

    def _write_json(self, event: str, values: dict[str, Any]) -> None:
        self._write(json.dumps({"time": round(time.time(), 3), "event": event, **values}) + "\n")

    def _write(self, text: str) -> None:
        assert self._out is not None
        # The reader of the log may end, or its disk may be full: the collector must not stop for that.
        with contextlib.suppress(OSError):
            self._out.write(text)
            self._out.flush()


def _fitting(parts: list[str], columns: int) -> str:
    while len(parts) > 1 and len("  ".join(parts)) > columns:
        parts = parts[:-1]
    return "  ".join(parts)[: max(columns, 0)]


def _rows(rows: dict[str, int], none: str = "no rows") -> str:
    first = [f"{count:,} rows of {name!r}" for name, count in list(rows.items())[:4]]
    more = [f"{len(rows) - 4} more datasets"] if len(rows) > 4 else []
    return ", ".join(first + more) or none

"""Prometheus metrics of a collector."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardkeep.errors import CollectorError, MissingExtraError

__all__ = ["serve"]


def serve(port: int, host: str = "127.0.0.1") -> Callable[[dict[str, Any]], None]:
    """Serve metrics over HTTP; return what to tell the numbers of each progress report.

    Raises
    ------
    MissingExtraError
        prometheus-client is not installed.
    CollectorError
        The port is taken.
    """
    try:
        from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
    except ImportError:
        message = "metrics need prometheus-client: pip install 'shardkeep[metrics]'"
        raise MissingExtraError(message) from None
    registry = CollectorRegistry()
    counters = {
        "rows": Counter("shardkeep_collector_rows", "Rows received", registry=registry),
        "bytes": Counter("shardkeep_collector_bytes", "Bytes of rows received", registry=registry),
        "commits": Counter("shardkeep_collector_commits", "Commits", registry=registry),
        "refused": Counter("shardkeep_collector_refused", "Messages refused", registry=registry),
        "repeated": Counter("shardkeep_collector_repeated", "Batches that came again", registry=registry),
    }
    gauges = {
        "clients": Gauge("shardkeep_collector_clients", "Clients connected", registry=registry),
        "credit_bytes": Gauge(
            "shardkeep_collector_credit_bytes", "Bytes that may be under way", registry=registry
        ),
        "last_commit_s_ago": Gauge(
            "shardkeep_collector_last_commit_age_seconds", "Age of the last commit", registry=registry
        ),
    }
    try:
        start_http_server(port, host, registry=registry)
    except OSError as error:
        raise CollectorError(f"metrics cannot be served on port {port} ({error}): choose another") from None
    told = dict.fromkeys(counters, 0)

    def tell(values: dict[str, Any]) -> None:
        for name, counter in counters.items():
            counter.inc(max(values[name] - told[name], 0))
            told[name] = values[name]
        for name, gauge in gauges.items():
            if values[name] is not None:
                gauge.set(values[name])

    return tell

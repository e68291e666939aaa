"""Prometheus metrics of a collector."""

from __future__ import annotations

from typing import Any

from shardkeep.errors import CollectorError, MissingExtraError

__all__ = ["Metrics", "serve"]


class Metrics:
    """The numbers, and the server that shows them.

    Call it with the numbers of each progress report. `port` is where it is served.

    Raises
    ------
    MissingExtraError
        prometheus-client is not installed.
    CollectorError
        The port is taken.
    """

    def __init__(self, port: int, host: str) -> None:
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
            "queued_bytes": Gauge(
                "shardkeep_collector_queued_bytes", "Bytes of rows not durable yet", registry=registry
            ),
            "credit_bytes": Gauge(
                "shardkeep_collector_credit_bytes", "Bytes that may be under way", registry=registry
            ),
            "last_commit_s_ago": Gauge(
                "shardkeep_collector_last_commit_age_seconds", "Age of the last commit", registry=registry
            ),
        }
        try:
            self._server, _ = start_http_server(port, host, registry=registry)
        except OSError as error:
            raise CollectorError(
                f"metrics cannot be served on port {port} ({error}): choose another"
            ) from None
        self.port: int = self._server.server_port
        self._counters, self._gauges = counters, gauges
        self._told = dict.fromkeys(counters, 0)

    def __call__(self, values: dict[str, Any]) -> None:
        """Take the numbers of a progress report."""
        for name, counter in self._counters.items():
            counter.inc(max(values[name] - self._told[name], 0))
            self._told[name] = values[name]
        for name, gauge in self._gauges.items():
            if values[name] is not None:
                gauge.set(values[name])

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()


def serve(port: int, host: str = "127.0.0.1") -> Metrics:
    """Serve metrics over HTTP; port 0 is any that is free."""
    return Metrics(port, host)

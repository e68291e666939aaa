"""Prometheus metrics of a collector."""

from __future__ import annotations

from typing import Any

from shardkeep._extras import import_extra
from shardkeep.errors import CollectorError

__all__ = ["Metrics"]

_PREFIX = "shardkeep_collector_"
_COUNTERS = {
    "rows": "Rows received",
    "bytes": "Bytes of rows received",
    "commits": "Commits",
    "refused": "Messages refused",
    "repeated": "Batches that were sent again",
}
_GAUGES = {
    "clients": ("clients", "Clients connected"),
    "queued_bytes": ("queued_bytes", "Bytes of rows not durable yet"),
    "credit_bytes": ("credit_bytes", "Bytes that may be under way"),
    "last_commit_s_ago": ("last_commit_age_seconds", "Age of the last commit"),
}


class Metrics:
    """The numbers of the last progress report, served over HTTP.

    Parameters
    ----------
    port : int
        0 for any free port.

    Raises
    ------
    MissingExtraError
        prometheus-client is not installed.
    CollectorError
        The port is in use.
    """

    def __init__(self, port: int) -> None:
        prometheus = import_extra("prometheus_client", "metrics_port=")
        registry = prometheus.CollectorRegistry()
        self._counters = {
            name: prometheus.Counter(_PREFIX + name, text, registry=registry)
            for name, text in _COUNTERS.items()
        }
        self._gauges = {
            name: prometheus.Gauge(_PREFIX + shown, text, registry=registry)
            for name, (shown, text) in _GAUGES.items()
        }
        self._counted = dict.fromkeys(_COUNTERS, 0)
        try:
            self._server, _ = prometheus.start_http_server(port, "127.0.0.1", registry=registry)
        except OSError as error:
            message = f"metrics cannot be served on port {port} ({error}): choose another"
            raise CollectorError(message) from None
        self.port: int = self._server.server_port

    def __call__(self, values: dict[str, Any]) -> None:
        """Publish the numbers of a progress report."""
        for name, counter in self._counters.items():
            counter.inc(max(values[name] - self._counted[name], 0))
            self._counted[name] = values[name]
        for name, gauge in self._gauges.items():
            if values[name] is not None:
                gauge.set(values[name])

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

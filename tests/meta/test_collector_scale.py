"""Simulated clients of a collector: every row is in the file exactly once.

Covers `shardkeep.collector.server.server`.
"""

from benchmarks.collector_scale import measured


def test_simulated_clients_lose_no_row() -> None:
    found = measured(60, rows=3, rounds=2)
    assert found["clients"] == 60
    assert found["descriptors"] < 60 + 60

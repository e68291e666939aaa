"""Simulated clients of a collector: every row is in the file exactly once, and their number costs nothing.

Covers `shardkeep.collector.server.server`.
"""

import pytest

from benchmarks.collector_scale import measured


@pytest.mark.parametrize(("clients", "tcp"), [(2_000, False), (100, True)])
def test_simulated_clients_lose_no_row(clients, tcp):
    found = measured(clients, rows=3, rounds=2, tcp=tcp)
    assert found["clients"] == clients
    assert found["descriptors"] < clients + 60


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_batch_of_10000_clients_costs_what_one_of_1000_costs():
    many, few = measured(10_000), measured(1_000, rounds=20)
    assert many["processor_s"] / (10_000 * 5) < 2 * few["processor_s"] / (1_000 * 20)

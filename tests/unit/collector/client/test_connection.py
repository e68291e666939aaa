"""The time between messages that a client repeats."""

import pytest

from shardkeep.collector.client.connection import ping_every_s


def test_few_clients_ask_again_soon():
    assert ping_every_s(8) == 0.5
    assert ping_every_s(8, is_idle=True) == 2


@pytest.mark.parametrize("is_idle", [False, True])
def test_all_clients_together_ask_2500_times_a_second(is_idle):
    for size in (1_000, 5_000, 10_000):
        assert size / ping_every_s(size, is_idle=is_idle) <= 2_500


def test_a_client_without_answers_asks_less_and_less():
    at, asked = 0.0, 0
    while at < 60:
        at += ping_every_s(8, at)
        asked += 1
    assert asked < 25


def test_no_client_is_silent_for_longer_than_the_collector_allows():
    assert ping_every_s(1 << 30, 1000.0, is_idle=True) < 5

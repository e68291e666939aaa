"""SIGKILL of clients, of the collector, of all at once, at random instants: nothing acknowledged is lost."""

import random
import time

import pytest

from shardkeep.hdf5 import snapshot
from tests.procs.collector_run import ACK, check_rows, flag, start_client, start_collector, stop


def _one_run(folder, seed):
    chance = random.Random(seed)
    folder.mkdir()
    path = folder / "all.h5"
    durability = chance.choice(["fsync", "flush"])
    go_on = flag()
    collector = start_collector(path, durability=durability)
    clients = [start_client(folder, rank, 0, seed * 10 + rank, go_on) for rank in range(2)]
    gone = []
    for client in clients:
        assert client.wait_for_word() != b""
    for round in range(2):
        time.sleep(chance.random() * 0.15)
        whom = chance.choice(["collector", "client", "all", "collector", "collector and client"])
        victims = [collector] if "collector" in whom or whom == "all" else []
        if "client" in whom:
            victims.append(chance.choice(clients))
        elif whom == "all":
            victims += clients
        chance.shuffle(victims)
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.join()
        if collector in victims:
            if chance.random() < 0.3:
                with snapshot(path) as file:  # repairs it too
                    assert "_collector" in file
            collector = start_collector(path, durability=durability)
        for victim in victims:
            if victim in clients:
                gone.append(victim)
                clients.remove(victim)
                clients.append(start_client(folder, victim.rank, round + 1, seed * 10 + 7 + round, go_on))
    time.sleep(0.05)
    go_on.value = 0
    for client in clients:
        assert client.join() == 0
    stop(collector)
    acknowledged = {}
    for client in [*gone, *clients]:
        words = client.said()
        last = len(words) // ACK.size * ACK.size
        acknowledged[client.rank, client.incarnation] = (
            ACK.unpack(words[last - ACK.size : last]) if last else (0, 0)
        )
    return check_rows(path, acknowledged)


@pytest.mark.parametrize("seed", range(3))
def test_kills_at_random_instants_lose_no_acknowledged_row(tmp_path, seed):
    _one_run(tmp_path / "run", seed)


@pytest.mark.slow
@pytest.mark.parametrize("tenth", range(20))
def test_two_hundred_kills_lose_no_acknowledged_row(tmp_path, tenth):
    for seed in range(100 + 10 * tenth, 110 + 10 * tenth):
        _one_run(tmp_path / str(seed), seed)

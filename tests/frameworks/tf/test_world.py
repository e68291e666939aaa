"""Ranks of the cluster that TensorFlow itself reads from TF_CONFIG."""

from __future__ import annotations

import json

import pytest

from shardkeep.world import World

tensorflow = pytest.importorskip("tensorflow")


@pytest.mark.parametrize(("kind", "index"), [("chief", 0), ("worker", 0), ("worker", 1)])
def test_rank_is_that_of_the_cluster_resolver(monkeypatch: pytest.MonkeyPatch, kind: str, index: int) -> None:
    cluster = {"chief": ["a:1"], "worker": ["b:1", "c:1"]}
    config = {"cluster": cluster, "task": {"type": kind, "index": index}}
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    found = tensorflow.distribute.cluster_resolver.TFConfigClusterResolver()
    world = World.detect()
    assert world.size == sum(map(len, found.cluster_spec().as_dict().values()))
    assert world.rank == (0 if found.task_type == "chief" else 1 + found.task_id)

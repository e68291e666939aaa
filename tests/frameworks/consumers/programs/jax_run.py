"""One process of a run with `jax.distributed`: reads its part, adds up the rows of all."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jax

import shardkeep as sk
from shardkeep.adapters.jax import make_global_batch
from tests.frameworks.exactly_once import make_loader


def main(rank: int, size: int, address: str, folder: str, *paths: str) -> None:
    early = sk.Loader(list(paths), {"x": sk.FixedLen()}, 10)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(address, size, rank)
    refusal = ""
    try:
        next(iter(early))
    except sk.WorldError as error:
        refusal = str(error)
    world = sk.World.detect()
    loader = make_loader(list(paths), world.rank, world.size, 10)
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    add = jax.jit(lambda batch: jax.numpy.where(batch["valid"], batch["x"], 0).sum())
    mine, total, shapes = [], 0, set()
    for batch in loader:
        whole = make_global_batch(batch, mesh)
        shapes.add(whole["x"].shape)
        total += int(add(whole))
        mine += batch["x"][batch["valid"]].tolist()
    misfit = ""
    try:
        make_global_batch({"x": batch["x"][:9]}, mesh)
    except sk.PlanError as error:
        misfit = str(error)
    report = {
        "world": [world.rank, world.size, world.source],
        "devices": [jax.local_device_count(), jax.device_count()],
        "refusal": refusal,
        "misfit": misfit,
        "shapes": sorted(shapes),
        "rows": mine,
        "total": total,
        "receipt": loader.receipt(),
    }
    Path(folder, f"{rank}.json").write_text(json.dumps(report))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])

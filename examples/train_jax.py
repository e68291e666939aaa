"""Training with JAX on two processes: a kill, a resume on three processes, merge and audit.

Each process reads its part of the records and gives JAX its part of each global batch. It writes its results
to its own HDF5 file. A checkpoint consists of the weights, the state of the loader, and a commit of each
process. One process is killed between two checkpoints; three processes continue from the last one, and the
audit proves from the receipts that each epoch used every record once.

    python examples/train_jax.py
"""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

import shardkeep as sk
from shardkeep.adapters.jax import make_global_batch

RECORDS = 310
EPOCHS = 2
BATCH_SIZE = 10  # of each process; a multiple of its devices
STEPS_BETWEEN_CHECKPOINTS = 6
TRUE_WEIGHTS = np.array([1.0, -2.0, 3.0, 0.5], np.float32)
FEATURES = {"x": sk.FixedLen((4,), "float32"), "y": sk.FixedLen(dtype="float32")}


@jax.jit
def update(weights: jax.Array, batch: dict[str, jax.Array]) -> tuple[jax.Array, jax.Array]:
    def loss(weights: jax.Array) -> jax.Array:
        errors = (batch["x"] @ weights - batch["y"]) ** 2
        return jnp.where(batch["valid"], errors, 0).sum() / batch["valid"].sum()  # without padded rows

    value, gradient = jax.value_and_grad(loss)(weights)
    return weights - 0.05 * gradient, value


def save(folder: Path, step: int, weights: jax.Array, state: dict[str, Any]) -> None:
    content = io.BytesIO()
    np.savez(content, step=step, weights=np.asarray(weights), state=json.dumps(state))
    with sk.files.publish(folder / "checkpoint.npz", exists="replace") as file:
        file.write(content.getvalue())


def train(folder: Path, kill_at: int | None) -> None:
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # JAX reads the address, but neither of the two numbers.
    jax.distributed.initialize(
        os.environ["JAX_COORDINATOR_ADDRESS"],
        int(os.environ["JAX_NUM_PROCESSES"]),
        int(os.environ["JAX_PROCESS_ID"]),
    )
    world = sk.World.detect()
    loader = sk.Loader(
        folder / "*.tfrecord", FEATURES, BATCH_SIZE, world, shuffle="global", epochs=EPOCHS, with_ids=True
    )
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    step, start = 0, np.zeros(4, np.float32)
    if (folder / "checkpoint.npz").exists():
        with np.load(folder / "checkpoint.npz") as saved:
            step, start = int(saved["step"]), saved["weights"]
            loader.load_state_dict(json.loads(str(saved["state"])))
    weights = jax.make_array_from_process_local_data(everywhere, start)
    with sk.hdf5.WorkerFile(folder / "run", world) as out:
        batches_left = len(loader)
        for batch in loader:
            whole = make_global_batch(batch, mesh, columns=["x", "y", "valid"])
            weights, loss = update(weights, whole)
            step, batches_left = step + 1, batches_left - 1
            out.append("shard", batch["shard"][batch["valid"]])
            out.append("index", batch["index"][batch["valid"]])
            if step % STEPS_BETWEEN_CHECKPOINTS == 0 or not batches_left:
                out.commit(step=step, receipt=loader.receipt())
                multihost_utils.sync_global_devices("all have committed")
                if world.rank == 0:
                    save(folder, step, weights, loader.state_dict())
                    print(f"  step {step}, loss {float(loss):.4f}, checkpoint", file=sys.stderr)
            if step == kill_at and world.rank == world.size - 1:
                os.kill(os.getpid(), signal.SIGKILL)
    jax.distributed.shutdown()


def launch(folder: Path, size: int, kill_at: int | None = None) -> list[int]:
    """Run `train` in processes with two CPU devices each; return their exit codes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    command = [sys.executable, __file__, str(folder), str(kill_at or 0)]
    processes = []
    for rank in range(size):
        settings = {
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
            "JAX_COORDINATOR_ADDRESS": address,
            "JAX_NUM_PROCESSES": str(size),
            "JAX_PROCESS_ID": str(rank),
        }
        # Gloo prints each of its connections.
        quiet = subprocess.DEVNULL
        processes.append(subprocess.Popen(command, env={**os.environ, **settings}, stdout=quiet))
    codes = [processes[-1].wait()]
    for process in processes[:-1]:
        if codes[0]:
            process.kill()  # it waits for the process that died
        codes.append(process.wait())
    return codes


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        values = np.random.default_rng(0).normal(size=(RECORDS, 4)).astype(np.float32)
        with sk.tfrecord.ShardWriter(folder / "{shard}.tfrecord", shards=5) as w:
            for x in values:
                w.write_example({"x": x, "y": np.float32(x @ TRUE_WEIGHTS)})

        print("two processes, one is killed at step 15:", flush=True)
        assert launch(folder, 2, kill_at=15)[0] == -signal.SIGKILL
        with np.load(folder / "checkpoint.npz") as saved:
            step = int(saved["step"])
        sk.hdf5.rollback(folder / "run", step=step)
        print(f"three processes, from the checkpoint of step {step}:", flush=True)
        assert launch(folder, 3) == [0, 0, 0]

        sk.hdf5.merge(folder / "run", folder / "results.h5")
        with sk.hdf5.open(folder / "results.h5") as results:
            print(f"merged: {len(results['index'])} rows of {RECORDS} records and {EPOCHS} epochs")
        with np.load(folder / "checkpoint.npz") as saved:
            print("weights:", [round(float(weight), 2) for weight in saved["weights"]])
        print(sk.audit(folder / "results.h5"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train(Path(sys.argv[1]), int(sys.argv[2]))
    else:
        main()

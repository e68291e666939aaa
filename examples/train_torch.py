"""A complete training with PyTorch: checkpoints, a killed rank, and the resume with another number of ranks.

Started without arguments, this program makes a data set and starts itself with torchrun: three ranks, one of
which is killed, then two ranks that resume from the newest checkpoint. It merges the results of all ranks
into one HDF5 file, and proves from the receipts that each record was used once in each epoch.

    python examples/train_torch.py

The part for your own job is `train`, which each rank runs:

    torchrun --nproc-per-node 3 examples/train_torch.py DATA RUN
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import shardkeep as sk
from shardkeep.adapters.torch import DataLoader

EPOCHS = 2
STEPS_PER_CHECKPOINT = 4
COUNTS = (7, 400, 33, 120, 5, 35)  # records of each shard
FEATURES = {"number": sk.FixedLen(), "x": sk.FixedLen((2,), "float32"), "y": sk.FixedLen(dtype="float32")}


def train(data: str, run: Path, *, workers: int = 2, dies_at: int | None = None) -> None:
    """Train on one rank, from the newest checkpoint of the run on."""
    dist.init_process_group("gloo")
    # After init_process_group, from which the loader takes its rank.
    loader = sk.Loader(f"{data}/*.tfrecord", FEATURES, batch_size=16, shuffle="global")
    batches = DataLoader(loader, num_workers=workers)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    step, checkpoint = 0, run / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint)
        step = saved["step"]
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        batches.load_state_dict(saved["batches"])
    if loader.world.rank == 0:
        # Rows after the checkpoint would be written twice; also those of ranks that exist no more.
        sk.rollback(run / "rows", step=step or None)
    dist.barrier()

    with sk.hdf5.WorkerFile(run / "rows", loader.world) as out:
        while loader.epoch < EPOCHS:
            for batch in batches:
                # Every rank makes every step. The last batches of an epoch are padded, or only padding.
                valid = batch["valid"]
                losses = (model(batch["x"])[:, 0] - batch["y"]) ** 2
                optimizer.zero_grad()
                (losses * valid).mean().backward()
                optimizer.step()
                step += 1
                out.append("number", batch["number"][valid])
                out.append("loss", losses.detach()[valid])
                if step == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                if step % STEPS_PER_CHECKPOINT == 0 or loader.position == 0:
                    save(checkpoint, step, model, optimizer, batches, out)
    dist.destroy_process_group()


def save(
    checkpoint: Path, step: int, model: Any, optimizer: Any, batches: DataLoader, out: sk.hdf5.WorkerFile
) -> None:
    out.commit(step=step, receipt=batches.loader.receipt())
    dist.barrier()  # the checkpoint is newer than the commits of all ranks
    if batches.loader.world.rank == 0:
        with sk.files.publish(checkpoint, exists="replace") as file:
            torch.save(
                {
                    "step": step,
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "batches": batches.state_dict(),
                },
                file,
            )
    dist.barrier()


# -- the demonstration -----------------------------------------------------------------------------


def make_data(folder: Path) -> None:
    number = 0
    for shard, count in enumerate(COUNTS):
        with sk.tfrecord.Writer(folder / f"{shard}.tfrecord") as w:
            for _ in range(count):
                x = [number % 7 / 7, number % 11 / 11]
                w.write_example({"number": number, "x": x, "y": x[0] - 2 * x[1]})
                number += 1


def torchrun(ranks: int, *arguments: str | Path, quiet: bool = False) -> int:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    # A machine whose name has no address can reach itself only so.
    environment = {**os.environ, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    errors = subprocess.DEVNULL if quiet else None
    command += [__file__, *map(str, arguments)]
    return subprocess.run(command, env=environment, stderr=errors, check=False).returncode


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        data, run = Path(folder, "data"), Path(folder, "run")
        data.mkdir()
        run.mkdir()
        make_data(data)
        print(f"{sum(COUNTS)} records in shards of {COUNTS}, {EPOCHS} epochs", flush=True)

        code = torchrun(3, data, run, "7", quiet=True)  # torchrun reports the killed rank at length
        step = torch.load(run / "checkpoint.pt")["step"]
        print(f"3 ranks: rank 1 was killed in step 7, exit code {code}; the checkpoint is of step {step}")

        code = torchrun(2, data, run)
        print(f"2 ranks: resumed, exit code {code}")

        sk.merge(run / "rows", run / "all.h5")
        with sk.hdf5.open(run / "all.h5") as file:
            numbers = sorted(file["number"][:].tolist())
        whole = numbers == sorted(list(range(sum(COUNTS))) * EPOCHS)
        print(f"merged: {len(numbers)} rows, {EPOCHS} of each record: {whole}")
        audit = sk.audit(run / "all.h5")
        print(audit)
    return 0 if whole and audit.ok and code == 0 else 1


if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.exit(main())
    dies = int(sys.argv[3]) if len(sys.argv) > 3 and os.environ["RANK"] == "1" else None
    train(sys.argv[1], Path(sys.argv[2]), dies_at=dies)

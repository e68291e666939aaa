"""A run of Lightning's Trainer on the processor, which writes the rows of each batch and its receipts.

    python lightning_run.py SHARDS OUT DEVICES EPOCHS [CHECKPOINT]

Each rank appends lines ``epoch step row row …`` to OUT/rows.RANK. Checkpoints are written each four steps and
at the end of each epoch, and receipts with them.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import ModelCheckpoint

import shardkeep as sk
from shardkeep.adapters.torch import DataLoader
from tests.frameworks.exactly_once import rows

warnings.simplefilter("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Model(pl.LightningModule):
    def __init__(self, shards: str, out: Path) -> None:
        super().__init__()
        self.shards, self.out = shards, out
        self.layer = torch.nn.Linear(1, 1)

    def train_dataloader(self) -> DataLoader:
        # Here the process group exists, in every process that Lightning has started.
        self.loader = sk.Loader(self.shards, {"x": sk.FixedLen()}, 16, shuffle="global")
        return DataLoader(self.loader)

    def training_step(self, batch: dict[str, Any], batch_idx: int) -> Any:
        with open(self.out / f"rows.{self.global_rank}", "a") as file:
            print(self.current_epoch, self.global_step, *rows(batch), file=file)
        return self.layer(batch["x"].float()[:, None]).mean() * 0

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)

    def on_save_checkpoint(self, checkpoint: Any) -> None:
        self.write_receipt(f"step{checkpoint['global_step']}")

    def on_train_end(self) -> None:
        self.write_receipt("end")

    def write_receipt(self, name: str) -> None:
        (self.out / f"receipt.{name}.{self.global_rank}").write_text(json.dumps(self.loader.receipt()))


def main(shards: str, out: str, devices: str, epochs: str, checkpoint: str = "") -> None:
    folder = Path(out)
    callbacks: list[pl.Callback] = [
        ModelCheckpoint(folder, "{step}", every_n_train_steps=4, save_top_k=-1),
        ModelCheckpoint(folder, "end-{epoch}", save_top_k=-1, save_on_train_epoch_end=True),
    ]
    trainer = pl.Trainer(
        max_epochs=int(epochs),
        accelerator="cpu",
        devices=int(devices),
        strategy="ddp" if int(devices) > 1 else "auto",
        callbacks=callbacks,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Model(shards, folder), ckpt_path=checkpoint or None)


if __name__ == "__main__":
    main(*sys.argv[1:])

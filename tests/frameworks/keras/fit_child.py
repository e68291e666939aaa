"""Program that trains until it is killed: fit_child.py FOLDER [batch|save|epoch NUMBER]."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import keras

import shardkeep as sk
from shardkeep.adapters.keras import BackupAndRestore, PyDataset, WorkerFileLogger
from tests.frameworks.exactly_once import make_loader
from tests.frameworks.keras.counting import counting_model, trained

EPOCHS = 4


class Kill(keras.callbacks.Callback):
    """Ends the process without warning at a place of the training."""

    def __init__(self, where: str, number: int) -> None:
        super().__init__()
        self.where, self.left = where, number

    def reach(self, where: str) -> None:
        if where == self.where:
            self.left -= 1
            if not self.left:
                os.kill(os.getpid(), signal.SIGKILL)

    def on_train_begin(self, logs: Any = None) -> None:
        model = self.model
        save = model.save_weights

        def save_weights(*args: Any, **options: Any) -> None:
            save(*args, **options)
            self.reach("save")

        model.save_weights = save_weights

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.reach("batch")

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.reach("epoch")


def main(folder: str, where: str = "", number: str = "0") -> None:
    paths = sorted(map(str, Path(folder).glob("*.tfrecord")))
    data = PyDataset(make_loader(paths), "x", "x")
    model = counting_model(built=True)
    with sk.hdf5.WorkerFile(f"{folder}/run", sk.World(0, 1)) as out:
        backup = BackupAndRestore(data, f"{folder}/backup", save_freq=4, delete_checkpoint=False)
        callbacks = [WorkerFileLogger(data, out), backup, Kill(where, int(number))]
        model.fit(data, epochs=EPOCHS, shuffle=False, callbacks=callbacks, verbose=0)
    sys.stdout.write(" ".join(map(str, trained(model))))


if __name__ == "__main__":
    main(*sys.argv[1:])

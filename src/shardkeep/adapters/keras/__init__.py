"""Keras 3 on TensorFlow, torch and jax: what `fit`, `evaluate` and `predict` take, and callbacks.

::

    PyDataset(loader, x, y)             a keras.utils.PyDataset: batches as (x, y, sample_weight)
    LoaderProgress(data)                moves the loader with the batches that the model used
    BackupAndRestore(data, folder)      also saves the model and the loader together, and resumes both
    WorkerFileLogger(data, out)         also writes logs and predictions through a WorkerFile
"""

from shardkeep.adapters.keras.backup import BackupAndRestore
from shardkeep.adapters.keras.dataset import PyDataset
from shardkeep.adapters.keras.logger import WorkerFileLogger
from shardkeep.adapters.keras.progress import LoaderProgress

__all__ = ["BackupAndRestore", "LoaderProgress", "PyDataset", "WorkerFileLogger"]

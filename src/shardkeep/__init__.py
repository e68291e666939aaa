"""Shardkeep keeps the files of a distributed training run whole.

Many processes read one set of record shards exactly once (`Loader`, `tfrecord`), many processes write
one HDF5 result without corrupting it (`hdf5`), and receipts prove what was read (`audit`).
"""

from typing import TYPE_CHECKING

from shardkeep.errors import (
    BudgetError,
    CollectorError,
    CorruptDataError,
    CorruptRecordError,
    DurabilityError,
    ExistsError,
    FormatError,
    InternalError,
    LockError,
    LockHeldError,
    LockTimeoutError,
    MissingExtraError,
    NotFoundError,
    PlanError,
    RepairRefusedError,
    SchemaError,
    ShardkeepError,
    TruncatedFileError,
    UntrustedFileError,
    WorldError,
)

if TYPE_CHECKING:
    from shardkeep import files, hdf5, plan, tfrecord
    from shardkeep.jobs.audit import audit
    from shardkeep.jobs.cat import cat
    from shardkeep.jobs.info import info
    from shardkeep.loader import Loader
    from shardkeep.tfrecord import FixedLen, Image, Ragged, VarLen
    from shardkeep.world import World
else:
    from shardkeep._lazy import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "shardkeep.files": "",
            "shardkeep.hdf5": "",
            "shardkeep.jobs": "audit cat info",
            "shardkeep.loader": "Loader",
            "shardkeep.plan": "",
            "shardkeep.tfrecord": "",
            "shardkeep.tfrecord.example.features": "FixedLen Image VarLen",
            "shardkeep.tfrecord.example.ragged": "Ragged",
            "shardkeep.world": "World",
        },
    )

__all__ = [
    "BudgetError",
    "CollectorError",
    "CorruptDataError",
    "CorruptRecordError",
    "DurabilityError",
    "ExistsError",
    "FixedLen",
    "FormatError",
    "Image",
    "InternalError",
    "Loader",
    "LockError",
    "LockHeldError",
    "LockTimeoutError",
    "MissingExtraError",
    "NotFoundError",
    "PlanError",
    "Ragged",
    "RepairRefusedError",
    "SchemaError",
    "ShardkeepError",
    "TruncatedFileError",
    "UntrustedFileError",
    "VarLen",
    "World",
    "WorldError",
    "audit",
    "cat",
    "files",
    "hdf5",
    "info",
    "plan",
    "tfrecord",
]

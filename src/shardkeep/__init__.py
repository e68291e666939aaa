"""Files of a distributed training run, kept whole.

Many processes read one set of record shards exactly once (`Loader`, `tfrecord`), many processes write one
HDF5 result without corrupting it (`hdf5`), and receipts prove which records were used (`audit`). The
function of each command is here as well: `verify`, `split`, `merge` and others. Other rooms import
`_extras`, `_lazy`, `_paths_in_messages`, `_summary`, `errors`, `html_page`, `progress`,
`quantities` and `world`.
"""

from typing import TYPE_CHECKING

from shardkeep import _file_locking as _file_locking
from shardkeep.errors import (
    BudgetError,
    CollectorError,
    CorruptDataError,
    CorruptRecordError,
    DurabilityError,
    EngineError,
    ExistsError,
    FormatError,
    InternalError,
    LockError,
    LockHeldError,
    LockTimeoutError,
    MissingExtraError,
    NotFoundError,
    PlanError,
    RemoteError,
    RepairRefusedError,
    SchemaError,
    ShardkeepError,
    TruncatedFileError,
    UntrustedFileError,
    WorldError,
)

if TYPE_CHECKING:
    from shardkeep import adapters, demo, diagnosis, files, hdf5, jobs, plan, tfrecord, viewer
    from shardkeep._version import __version__
    from shardkeep.diagnosis.examination.examine import doctor
    from shardkeep.diagnosis.examination.file_systems.storage import bench
    from shardkeep.diagnosis.explanation.search import explain
    from shardkeep.hdf5.merge.merge import merge
    from shardkeep.hdf5.worker.rollback import rollback
    from shardkeep.jobs.audit import audit
    from shardkeep.jobs.cat import cat
    from shardkeep.jobs.concat import concat
    from shardkeep.jobs.engine import engine
    from shardkeep.jobs.info import info
    from shardkeep.jobs.pack import pack
    from shardkeep.jobs.repair import repair
    from shardkeep.jobs.split import split
    from shardkeep.jobs.verify import verify
    from shardkeep.loader import Loader
    from shardkeep.tfrecord import FixedLen, Image, Ragged, VarLen, build_index, infer_schema
    from shardkeep.tfrecord.follow.follow import follow
    from shardkeep.world import World
else:
    from shardkeep._lazy import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "shardkeep._version": "__version__",
            "shardkeep.adapters": "adapters",
            "shardkeep.demo": "demo",
            "shardkeep.diagnosis": "diagnosis bench doctor explain",
            "shardkeep.files": "files",
            "shardkeep.hdf5": "hdf5 merge rollback",
            "shardkeep.jobs": "jobs audit cat concat engine info pack repair split verify",
            "shardkeep.loader": "Loader",
            "shardkeep.plan": "plan",
            "shardkeep.tfrecord": "tfrecord FixedLen Image Ragged VarLen build_index follow infer_schema",
            "shardkeep.viewer": "viewer",
            "shardkeep.world": "World",
        },
    )

__all__ = [
    "BudgetError",
    "CollectorError",
    "CorruptDataError",
    "CorruptRecordError",
    "DurabilityError",
    "EngineError",
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
    "RemoteError",
    "RepairRefusedError",
    "SchemaError",
    "ShardkeepError",
    "TruncatedFileError",
    "UntrustedFileError",
    "VarLen",
    "World",
    "WorldError",
    "__version__",
    "adapters",
    "audit",
    "bench",
    "build_index",
    "cat",
    "concat",
    "demo",
    "diagnosis",
    "doctor",
    "engine",
    "explain",
    "files",
    "follow",
    "hdf5",
    "infer_schema",
    "info",
    "jobs",
    "merge",
    "pack",
    "plan",
    "repair",
    "rollback",
    "split",
    "tfrecord",
    "verify",
    "viewer",
]

"""HDF5 written by many processes: one file per worker, one merged result, or one writer for all."""

from typing import TYPE_CHECKING

from shardkeep.hdf5.file_handle import File
from shardkeep.hdf5.file_members import Attributes, Dataset, Group
from shardkeep.hdf5.guard_findings import Finding
from shardkeep.hdf5.guard_watch import Guard, guard
from shardkeep.hdf5.hdf5_locking import LockingMode, locking_mode
from shardkeep.hdf5.merge import MergeReport, merge
from shardkeep.hdf5.merge_plan import MergePlan, plan_merge
from shardkeep.hdf5.open_file import open
from shardkeep.hdf5.receipts import receipts
from shardkeep.hdf5.rollback import rollback
from shardkeep.hdf5.verify import Verdict, verify
from shardkeep.hdf5.worker_file import WorkerFile

if TYPE_CHECKING:
    from shardkeep.hdf5.collect import Client, Collector, connect, snapshot
else:
    from shardkeep._lazy import lazily

    __getattr__, __dir__ = lazily(__name__, {"shardkeep.hdf5.collect": "Client Collector connect snapshot"})

__all__ = [
    "Attributes",
    "Client",
    "Collector",
    "Dataset",
    "File",
    "Finding",
    "Group",
    "Guard",
    "LockingMode",
    "MergePlan",
    "MergeReport",
    "Verdict",
    "WorkerFile",
    "connect",
    "guard",
    "locking_mode",
    "merge",
    "open",
    "plan_merge",
    "receipts",
    "rollback",
    "snapshot",
    "verify",
]

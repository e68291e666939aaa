"""HDF5 written by many processes: one file per worker, one merged result, or one writer for all.

Other rooms import `h5py_private`, `read_errors` and `verify`.
"""

from typing import TYPE_CHECKING

from shardkeep.hdf5.guard.findings import Finding
from shardkeep.hdf5.guard.watch import Guard, guard
from shardkeep.hdf5.locking.mode import LockingMode, locking_mode
from shardkeep.hdf5.merge.merge import MergeReport, merge
from shardkeep.hdf5.merge.plan import MergePlan
from shardkeep.hdf5.merge.planner import plan_merge
from shardkeep.hdf5.open.dataset import Dataset
from shardkeep.hdf5.open.file import File
from shardkeep.hdf5.open.group import Group
from shardkeep.hdf5.open.member import Attributes
from shardkeep.hdf5.open.open_file import open
from shardkeep.hdf5.sources.receipts import receipts
from shardkeep.hdf5.verify import Verdict, verify
from shardkeep.hdf5.worker.rollback import rollback
from shardkeep.hdf5.worker.worker_file import WorkerFile

if TYPE_CHECKING:
    from shardkeep.collector import Client, Collector, connect, snapshot
else:
    from shardkeep._lazy import lazily

    __getattr__, __dir__ = lazily(__name__, {"shardkeep.collector": "Client Collector connect snapshot"})

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

"""HDF5 written by many processes: one file per worker, one merged result."""

from shardkeep.hdf5.file_handle import Attributes, Dataset, File, Group
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

__all__ = [
    "Attributes",
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
    "guard",
    "locking_mode",
    "merge",
    "open",
    "plan_merge",
    "receipts",
    "rollback",
    "verify",
]

"""Jobs on whole files and folders; the function of a command is in the module of its name.

Sub-rooms: `division` copies records from files into shards, for `split` and `concat`; `pack_sources` reads
images, tables and arrays for `pack`; `verification` has the parts of `verify`.
Other rooms import `audit`, `cat`, `concat`, `info`, `json_values`, `pack`, `split` and `verify`.
"""

from shardkeep._lazy import public_names
from shardkeep.jobs.audit import audit, gather_receipts
from shardkeep.jobs.cat import RecordItem, RowItem, cat, show_record
from shardkeep.jobs.concat import concat
from shardkeep.jobs.division.divide import ShardFile, SplitReport
from shardkeep.jobs.info import (
    DatasetInfo,
    FeatureInfo,
    FileEntry,
    FolderInfo,
    HDF5Info,
    TFRecordInfo,
    WorkerInfo,
    info,
)
from shardkeep.jobs.pack import PackReport, pack
from shardkeep.jobs.split import split
from shardkeep.jobs.verification.finding import Finding
from shardkeep.jobs.verification.report import SkippedFile, VerifiedFile, VerifyReport
from shardkeep.jobs.verify import verify

__all__ = [
    "DatasetInfo",
    "FeatureInfo",
    "FileEntry",
    "Finding",
    "FolderInfo",
    "HDF5Info",
    "PackReport",
    "RecordItem",
    "RowItem",
    "ShardFile",
    "SkippedFile",
    "SplitReport",
    "TFRecordInfo",
    "VerifiedFile",
    "VerifyReport",
    "WorkerInfo",
    "audit",
    "cat",
    "concat",
    "gather_receipts",
    "info",
    "pack",
    "show_record",
    "split",
    "verify",
]

__dir__ = public_names(__name__)

"""Work on whole files and folders: say what is in them, show it, check it, prove what was done."""

from shardkeep.jobs.audit import audit, gather_receipts
from shardkeep.jobs.cat import RecordItem, RowItem, cat, show_record
from shardkeep.jobs.concat import concat
from shardkeep.jobs.division import ShardFile, SplitReport
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
from shardkeep.jobs.verify import VerifiedFile, VerifyReport, verify

__all__ = [
    "DatasetInfo",
    "FeatureInfo",
    "FileEntry",
    "FolderInfo",
    "HDF5Info",
    "PackReport",
    "RecordItem",
    "RowItem",
    "ShardFile",
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

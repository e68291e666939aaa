"""Work on whole files and folders: say what is in them, show it, prove what was done with it."""

from shardkeep.jobs.audit import audit, gather_receipts
from shardkeep.jobs.cat import RecordItem, RowItem, cat
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

__all__ = [
    "DatasetInfo",
    "FeatureInfo",
    "FileEntry",
    "FolderInfo",
    "HDF5Info",
    "RecordItem",
    "RowItem",
    "TFRecordInfo",
    "WorkerInfo",
    "audit",
    "cat",
    "gather_receipts",
    "info",
]

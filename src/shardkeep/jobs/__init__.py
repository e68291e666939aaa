"""Jobs on whole files and folders; the function of a command is in the module of its name.

Sub-rooms: `division` copies records from files into shards, for `split` and `concat`; `pack_sources` reads
images, tables and arrays for `pack`; `inspection`, `verification` and `salvage` have the parts of `info`,
`verify` and `repair`.
Other rooms import `audit`, `cat`, `concat`, `engine`, `info`, `json_values`, `pack`, `repair`, `split`
and `verify`.
"""

from shardkeep._lazy import public_names
from shardkeep.jobs.audit import audit
from shardkeep.jobs.cat import RecordItem, RowItem, cat, show_record
from shardkeep.jobs.concat import concat
from shardkeep.jobs.division.divide import ShardFile, SplitReport
from shardkeep.jobs.engine import engine
from shardkeep.jobs.info import DatasetInfo, FeatureInfo, HDF5Info, TFRecordInfo, info
from shardkeep.jobs.inspection.folder import FileEntry, FolderInfo, KindInfo
from shardkeep.jobs.inspection.merged import MergedInfo, MergedRank
from shardkeep.jobs.inspection.workers import WorkerInfo
from shardkeep.jobs.pack import PackReport, pack
from shardkeep.jobs.repair import repair
from shardkeep.jobs.salvage.report import RepairedFile, RepairedPart, RepairReport
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
    "KindInfo",
    "MergedInfo",
    "MergedRank",
    "PackReport",
    "RecordItem",
    "RepairReport",
    "RepairedFile",
    "RepairedPart",
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
    "engine",
    "info",
    "pack",
    "repair",
    "show_record",
    "split",
    "verify",
]

__dir__ = public_names(__name__)

"""Plans of epochs (which record goes to which rank at which step), and the audit of receipts.

`order` and `mixture` define the order of the records, `epoch` and `file_plan` the steps of each rank,
`proof` has the receipts and their audit. All functions are pure: they take integers and return frozen
dataclasses and NumPy arrays, and use no file, clock or random source.
Other rooms import any module.
"""

from shardkeep._lazy import public_names
from shardkeep.plan.coverage import RangeSet
from shardkeep.plan.epoch import EpochPlan, Remainder, steps_per_epoch
from shardkeep.plan.order import (
    BLOCK_RECORDS,
    ORDER_VERSION,
    WINDOW_BLOCKS,
    BlockOrder,
    EpochOrder,
    GlobalOrder,
    SequentialOrder,
    Shuffle,
    epoch_order,
)
from shardkeep.plan.permutation import Permutation
from shardkeep.plan.proof.audit import audit
from shardkeep.plan.proof.contents import Dataset, Segment
from shardkeep.plan.proof.damage import Damage
from shardkeep.plan.proof.receipt import RECEIPT_VERSION, Receipt
from shardkeep.plan.proof.report import AuditReport, DamagedRecord, EpochAudit, RecordName
from shardkeep.plan.shards import ShardTable

__all__ = [
    "BLOCK_RECORDS",
    "ORDER_VERSION",
    "RECEIPT_VERSION",
    "WINDOW_BLOCKS",
    "AuditReport",
    "BlockOrder",
    "Damage",
    "DamagedRecord",
    "Dataset",
    "EpochAudit",
    "EpochOrder",
    "EpochPlan",
    "GlobalOrder",
    "Permutation",
    "RangeSet",
    "Receipt",
    "RecordName",
    "Remainder",
    "Segment",
    "SequentialOrder",
    "ShardTable",
    "Shuffle",
    "audit",
    "epoch_order",
    "steps_per_epoch",
]

__dir__ = public_names(__name__)

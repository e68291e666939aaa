"""The demo: a training run on one machine that loses a worker, resumes, and proves which records it used.

The parent (`train`) starts one process per rank (`worker_pool`, `worker`) and exchanges messages with them.
After the training, `proof` checks the merged file and `page` makes ``report.html``.
Other rooms import `console`, `data`, `proof`, `report` and `train`.
"""

from shardkeep._lazy import public_names
from shardkeep.demo.phases import run
from shardkeep.demo.report import Check, Death, DemoReport, EpochUse

__all__ = ["Check", "Death", "DemoReport", "EpochUse", "run"]

__dir__ = public_names(__name__)

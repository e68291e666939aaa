"""Explanations of what broke a training run, and checks of what would break it.

Other rooms import `kernel`.
Sub-rooms: `explanation` finds known causes of errors in a log; `examination` checks machine and files.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardkeep.diagnosis.examination.examine import doctor
    from shardkeep.diagnosis.examination.file_systems.second_host import assist_bench
    from shardkeep.diagnosis.examination.file_systems.storage import bench
    from shardkeep.diagnosis.examination.file_systems.storage_report import (
        StorageReport,
        StorageTrial,
        StorageUse,
    )
    from shardkeep.diagnosis.examination.report import DoctorReport, Fact, Problem
    from shardkeep.diagnosis.explanation.diagnosis import Diagnosis, InspectedPath
    from shardkeep.diagnosis.explanation.search import explain
else:
    from shardkeep._lazy import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "shardkeep.diagnosis.examination.examine": "doctor",
            "shardkeep.diagnosis.examination.file_systems.second_host": "assist_bench",
            "shardkeep.diagnosis.examination.file_systems.storage": "bench",
            "shardkeep.diagnosis.examination.file_systems.storage_report": (
                "StorageReport StorageTrial StorageUse"
            ),
            "shardkeep.diagnosis.examination.report": "DoctorReport Fact Problem",
            "shardkeep.diagnosis.explanation.diagnosis": "Diagnosis InspectedPath",
            "shardkeep.diagnosis.explanation.search": "explain",
        },
    )

__all__ = [
    "Diagnosis",
    "DoctorReport",
    "Fact",
    "InspectedPath",
    "Problem",
    "StorageReport",
    "StorageTrial",
    "StorageUse",
    "assist_bench",
    "bench",
    "doctor",
    "explain",
]

"""Explanations of what broke a training run.

Sub-room: `explanation` finds known causes of errors in a log.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardkeep.doctor.explanation.diagnosis import Diagnosis, InspectedPath
    from shardkeep.doctor.explanation.search import explain
else:
    from shardkeep._lazy import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "shardkeep.doctor.explanation.diagnosis": "Diagnosis InspectedPath",
            "shardkeep.doctor.explanation.search": "explain",
        },
    )

__all__ = ["Diagnosis", "InspectedPath", "explain"]

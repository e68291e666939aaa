"""Explanations of what broke a training run, and checks of what would break it.

Sub-rooms: `explanation` finds known causes of errors in a log; `examination` checks machine and files.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shardkeep.diagnosis.explanation.diagnosis import Diagnosis, InspectedPath
    from shardkeep.diagnosis.explanation.search import explain
else:
    from shardkeep._lazy import lazily

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "shardkeep.diagnosis.explanation.diagnosis": "Diagnosis InspectedPath",
            "shardkeep.diagnosis.explanation.search": "explain",
        },
    )

__all__ = ["Diagnosis", "InspectedPath", "explain"]

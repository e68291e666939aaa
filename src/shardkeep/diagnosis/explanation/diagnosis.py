"""Result of `shardkeep.diagnosis.explain`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from shardkeep._summary import summary
from shardkeep.diagnosis.explanation.knowledge import Certainty

__all__ = ["Diagnosis", "InspectedPath"]


@dataclass(frozen=True, repr=False)
class InspectedPath:
    """A path of the log that exists on this machine.

    Attributes
    ----------
    path : str
    found : str
        Kind and size of the file, and the first damage if it is small enough to be verified at once.
    """

    path: str
    found: str

    __repr__ = summary


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """A known error of a log, with its cause.

    Attributes
    ----------
    name : str
        Entry of the knowledge base, such as ``"hdf5/locked"``.
    title : str
        The fault in one line.
    certainty : {"certain", "likely", "possible"}
        How sure the cause is: "certain" if the text has no other one.
    cause, fix : str
    here : str
        Facts of this machine that the fix depends on; often empty.
    apart : str
        How to find out which of several causes it is, if the text does not say; often empty.
    prove : str
        Command that shows whether the cause is the one of this case.
    sources : tuple of str
        Issues ("h5py/h5py#1864"), URLs, and "measured" for experiments of this project.
    consequence : bool
        True if the error only follows from another one.
    line : int
        Number of the first such line in the log, from 1.
    evidence : str
        That line.
    count : int
        Number of such lines; of lines that differ in numbers only, at most 1,000 are counted.
    paths : tuple of InspectedPath
        Paths near the first line that exist on this machine.
    """

    name: str
    title: str
    certainty: Certainty
    cause: str
    fix: str
    here: str
    apart: str
    prove: str
    sources: tuple[str, ...]
    consequence: bool
    line: int
    evidence: str
    count: int
    paths: tuple[InspectedPath, ...] = ()

    __repr__ = summary

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnosis as types that JSON supports."""
        return asdict(self)

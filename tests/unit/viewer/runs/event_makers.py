"""Event files as PyTorch writes them."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable

from shardkeep.tfrecord import Writer
from tests.unit.tfrecord.events.test_message import event, simple, version_event

__all__ = ["write_events"]


def write_events(path: pathlib.Path, values: Iterable[tuple[str, int, float]]) -> None:
    """Write an event file with scalars: tag, step and value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with Writer(path) as writer:
        writer.write(version_event(1.7e9))
        for tag, step, value in values:
            writer.write(event(1.7e9, step, simple(tag, value)))

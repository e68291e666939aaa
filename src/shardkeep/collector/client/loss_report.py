"""The report of rows that may be lost, when no later call can raise an error."""

from __future__ import annotations

import contextlib
import sys
import warnings

from shardkeep.collector.client.state import SenderState

__all__ = ["report_losses"]


def report_losses(state: SenderState) -> None:
    """Write one line to stderr and warn (`ResourceWarning`), once, if rows or errors were not reported."""
    lost, parts = state.undelivered(), [str(one) for one in state.errors]
    is_reported, state.is_loss_reported = state.is_loss_reported, True
    if is_reported or not (lost or parts):
        return
    if lost:
        total = sum(lost.values())
        what = ", ".join(
            f"{rows:,} of {name!r}" if rows else f"value {name!r}" for name, rows in lost.items()
        )
        why = state.failure or state.silence or "not in time"
        parts.append(
            f"{total:,} rows may be lost ({what}): {state.address} has not acknowledged them ({why})"
        )
    message = f"client of rank {state.rank}: {'; '.join(parts)}"
    message = "".join(one if one.isprintable() else " " for one in message)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"shardkeep: {message}\n")
        sys.stderr.flush()
    # Where warnings are errors, no caller is left to receive this one.
    with contextlib.suppress(ResourceWarning):
        warnings.warn(message, ResourceWarning, stacklevel=2)

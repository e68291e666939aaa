"""How rows that may be lost are told when there is no call left that could raise."""

from __future__ import annotations

import contextlib
import sys
import warnings

__all__ = ["tell_losses"]


def tell_losses(rank: int, address: str, lost: dict[str, int], errors: list[str], why: str) -> None:
    """Write one line to stderr and give a `ResourceWarning`.

    Parameters
    ----------
    rank : int
    address : str
        Of the collector.
    lost : dict of str to int
        Rows of each dataset that were not acknowledged; 0 of a value that was put.
    errors : list of str
        What the collector said about rows, and nobody has heard.
    why : str
        Why the rows were not acknowledged.
    """
    parts = list(errors)
    if lost:
        total = sum(lost.values())
        what = ", ".join(
            f"{rows:,} of {name!r}" if rows else f"value {name!r}" for name, rows in lost.items()
        )
        parts.append(f"{total:,} rows may be lost ({what}): {address} has not acknowledged them ({why})")
    message = f"client of rank {rank}: {'; '.join(parts)}"
    message = "".join(one if one.isprintable() else " " for one in message)
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"shardkeep: {message}\n")
        sys.stderr.flush()
    # Where warnings are errors: nobody is left whom it could be raised to.
    with contextlib.suppress(ResourceWarning):
        warnings.warn(message, ResourceWarning, stacklevel=2)

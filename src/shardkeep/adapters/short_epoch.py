"""Warning of Keras about an epoch with fewer batches than its length, as the rest of a resumed one is."""

from __future__ import annotations

import contextlib
import re
import warnings

__all__ = ["expect_short_epoch"]

_MESSAGE = "Your input ran out of data; interrupting training"
_FILTER = ("ignore", re.compile(_MESSAGE, re.IGNORECASE), UserWarning, None, 0)


def expect_short_epoch(is_short: bool) -> None:
    """Ignore the warning in the epoch that begins, or no longer.

    Keras raises it between two epochs, after the last batch and when no function of an adapter runs.

    Parameters
    ----------
    is_short : bool
        True if the epoch has fewer batches than the length that Keras was given.
    """
    with contextlib.suppress(ValueError):
        warnings.filters.remove(_FILTER)  # type: ignore[attr-defined]
    if is_short:
        warnings.filterwarnings("ignore", _MESSAGE, UserWarning)

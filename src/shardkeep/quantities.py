"""Texts of numbers, sizes and lists for messages and tables."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["counted", "human_bytes", "listed"]

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in singular or plural.

    Examples
    --------
    >>> counted(1, "file"), counted(2000, "file"), counted(3, "process")
    ('1 file', '2,000 files', '3 processes')
    """
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}{ending}"


def listed(shown: Iterable[object], total: int) -> str:
    """Return the first items of a list, and the number of the others.

    Examples
    --------
    >>> listed(["a", "b"], 5), listed([7], 1)
    ('a, b and 3 more', '7')
    """
    texts = list(map(str, shown))
    more = f" and {total - len(texts):,} more" if total > len(texts) else ""
    return ", ".join(texts) + more


def human_bytes(count: int) -> str:
    """Return a size in units of powers of 1,024.

    Examples
    --------
    >>> human_bytes(17), human_bytes(1536), human_bytes(3_500_000_000)
    ('17 bytes', '1.5 KiB', '3.3 GiB')
    """
    if count < 1024:
        return f"{count} byte{'' if count == 1 else 's'}"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}"

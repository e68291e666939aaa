"""Small pieces of text that messages and tables share."""

from __future__ import annotations

__all__ = ["counted", "human_bytes", "printable"]

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")


def printable(text: str) -> str:
    r"""Return `text` with control characters escaped: what comes from a file must not steer a terminal.

    Examples
    --------
    >>> printable("a\x1b[31m é")
    'a\\x1b[31m é'
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def counted(count: int, noun: str) -> str:
    """Return how many there are of something.

    Examples
    --------
    >>> counted(1, "file"), counted(2000, "file")
    ('1 file', '2,000 files')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def human_bytes(count: int) -> str:
    """Return a size as people say it, in powers of 1,024.

    Examples
    --------
    >>> human_bytes(17), human_bytes(1536), human_bytes(3_500_000_000)
    ('17 bytes', '1.5 KiB', '3.3 GiB')
    """
    if count < 1024:
        return f"{count} byte{'' if count == 1 else 's'}"
    power = min((count.bit_length() - 1) // 10, len(_UNITS))
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}"

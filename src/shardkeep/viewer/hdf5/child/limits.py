"""Sizes of the answers of a child, which the page shows."""

from __future__ import annotations

__all__ = ["ATTRIBUTES", "COLUMNS", "MEMBERS", "ROWS"]

MEMBERS = 100
ATTRIBUTES = 200
ROWS = 50
COLUMNS = 24

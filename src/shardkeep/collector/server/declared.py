"""What a client has declared on its connection: which datasets there are, and whether its rows fit them.

DECLARED is the answer before there is a commit: rows that come behind it cannot be in an earlier one than
their dataset. What is lost with a collector that was killed in between, the client declares again when it
connects, before it sends rows; if somebody has made another dataset of that name by then, its rows are
refused, since their bytes would be taken for other values.
"""

from __future__ import annotations

from shardkeep.collector.protocol.limits import check_chunk
from shardkeep.collector.protocol.messages import Message
from shardkeep.collector.protocol.schema import Schema
from shardkeep.collector.store.store import Store
from shardkeep.errors import CollectorError, MissingExtraError, SchemaError
from shardkeep.hdf5.storage.dtypes import describe

__all__ = ["Forms"]


class Forms:
    """The datasets that one client has declared on one connection."""

    def __init__(self) -> None:
        self._faults: dict[str, str | None] = {}

    def declare(self, message: Message, store: Store, memory_bytes: int) -> tuple[Schema, bool]:
        """Take a DECLARE; return what the dataset is, and whether it was made.

        Raises
        ------
        CollectorError, SchemaError, MissingExtraError
            It makes no sense, or cannot be made.
        """
        wanted = Schema.from_json(message.json())
        name = wanted.name
        is_new = store.schema(name) is None
        try:
            check_chunk(wanted, memory_bytes)
            known = store.declare(wanted)
        except (CollectorError, ValueError, MissingExtraError) as error:
            if message.parts:
                self._faults[name] = str(error)
            raise
        if not message.parts:
            # Its rows will have the form that it is told.
            self._faults.setdefault(name, None)
        elif known.fits(wanted):
            self._faults[name] = None
        else:
            mine, its = describe(known.dtype, known.row_shape), describe(wanted.dtype, wanted.row_shape)
            self._faults[name] = f"dataset {name!r} was made anew, with {mine}: no place for {its}"
        return known, is_new

    def check(self, name: str, rows: int) -> None:
        """Raise `SchemaError` for rows that are not in the form of their dataset, or of none."""
        fault = self._faults.get(name, f"dataset {name!r} was not declared")
        if fault is not None:
            raise SchemaError(f"{fault}; {rows} rows of this client are not stored: connect again")

"""Arrow tables as columns of Examples."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from shardkeep._extras import import_extra
from shardkeep.errors import SchemaError
from shardkeep.tfrecord.example.ragged import Ragged

__all__ = ["arrow_columns"]


def arrow_columns(table: Any) -> dict[str, npt.NDArray[Any] | Ragged]:
    """Return the columns of a table, as `Writer.write_examples` takes them.

    Parameters
    ----------
    table : object with ``__arrow_c_stream__``
        A table of pyarrow, a DataFrame of Polars, or another object of the Arrow PyCapsule interface.

    Returns
    -------
    dict of str to ndarray or Ragged
        Integers, booleans and floats as they are, strings and binary values as objects (`bytes`). Lists,
        nested or of a fixed size, and tensors are rows of flat values. A null is a row without values.

    Raises
    ------
    MissingExtraError
        pyarrow is not installed.
    SchemaError
        A column has another type, such as a date or a struct, or a null within a list.
    """
    pa = import_extra("pyarrow", "write_examples with an Arrow table")
    table = pa.table(table)
    return {
        name: _column(pa, name, _whole(pa, column))
        for name, column in zip(table.column_names, table.columns, strict=True)
    }


def _whole(pa: Any, column: Any) -> Any:
    whole = column.combine_chunks()
    # Of a column without chunks, or of an extension type, some releases return a ChunkedArray.
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _column(pa: Any, name: str, array: Any) -> npt.NDArray[Any] | Ragged:
    types = pa.types
    offsets: npt.NDArray[np.int64] | None = None
    while True:
        kind = array.type
        if isinstance(kind, pa.BaseExtensionType):
            array = array.storage
        elif types.is_dictionary(kind):
            words = _without_views(pa, array.dictionary)
            array = pa.DictionaryArray.from_arrays(array.indices, words).dictionary_decode()
        elif types.is_struct(kind) and {"data", "shape"} == {field.name for field in kind}:
            array = array.field("data")  # tensors of varying shapes in Ray
        elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            _refuse_nulls(name, array, offsets)
            offsets = _inner_offsets(pa.compute.list_value_length(array), offsets)
            array = array.flatten()
        else:
            break
    array = _without_views(pa, array)
    if offsets is not None:
        _refuse_nulls(name, array, offsets)
    elif array.null_count:
        offsets = _offsets(array.is_valid().to_numpy(zero_copy_only=False))
        array = array.drop_null()
    values = _values(types, name, array)
    return values if offsets is None else Ragged(values, offsets)


def _without_views(pa: Any, array: Any) -> Any:
    """Return strings of Polars, for which pyarrow has few functions, in the older layout."""
    older = {"string_view": pa.large_string, "binary_view": pa.large_binary}.get(str(array.type))
    return array if older is None else pa.array(array.to_pylist(), older())


def _refuse_nulls(name: str, array: Any, offsets: Any) -> None:
    if offsets is not None and array.null_count:
        raise SchemaError(f"column {name!r} has a null in a list, which an Example cannot hold: replace it")


def _inner_offsets(lengths: Any, outer: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    inner = _offsets(lengths.fill_null(0).to_numpy(zero_copy_only=False))
    return inner if outer is None else inner[outer]


def _offsets(lengths: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def _values(types: Any, name: str, array: Any) -> npt.NDArray[Any]:
    kind = array.type
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        numbers: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return numbers
    if any(
        check(kind)
        for check in (
            types.is_string,
            types.is_large_string,
            types.is_binary,
            types.is_large_binary,
            types.is_fixed_size_binary,
        )
    ):
        values = np.empty(len(array), object)
        values[:] = array.to_pylist()
        return values
    raise SchemaError(
        f"column {name!r} is {kind}; an Example holds integers, floats and bytes: cast or drop it"
    )

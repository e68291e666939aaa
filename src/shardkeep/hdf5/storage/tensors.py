"""Arrays of frameworks as NumPy arrays, and the exact advice where one cannot be converted.

No framework is imported: types are known by the names of their modules.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardkeep.errors import SchemaError
from shardkeep.hdf5.read_errors import first_line

__all__ = ["as_numpy", "conversion_advice"]


def as_numpy(label: str, rows: Any) -> Any:
    """Return the array of a framework as a NumPy array; anything else as it is.

    Errors begin with `label`, as in "dataset 'x'".

    Raises
    ------
    SchemaError
        The tensor cannot be converted without a decision of its owner; the message has the call.
    """
    advice = conversion_advice(rows)
    if not advice or isinstance(rows, (list, tuple)):
        return rows
    try:
        array = np.asarray(rows)
        reason = f"HDF5 has no {array.dtype}"
    except (ValueError, TypeError, RuntimeError) as error:
        array = None
        reason = first_line(error)
    if array is None or array.dtype.kind == "V" or (array.dtype == object and not array.ndim):
        raise SchemaError(f"{label}: this {type(rows).__name__} cannot be kept ({reason:.200}): {advice}")
    return array


def conversion_advice(rows: Any) -> str:
    """Return how a tensor of a framework, or the first one of a list, becomes an array; "" for others."""
    one = rows
    while isinstance(one, (list, tuple)) and one:
        one = one[0]
    module = type(one).__module__.partition(".")[0]
    if module == "torch" and hasattr(one, "layout"):
        return _of_torch(one)
    kind = type(one).__name__
    if module == "tensorflow":
        if kind == "RaggedTensor":
            return "append shardkeep.Ragged(rows.values.numpy(), rows.row_splits.numpy())"
        if kind == "SparseTensor":
            return "append tf.sparse.to_dense(rows).numpy()"
        return "append tf.cast(rows, tf.float32).numpy(), outside of tf.function"
    if module in ("jax", "jaxlib"):
        if "Tracer" in kind:
            return "append it outside of jax.jit, as a result of the function"
        if not getattr(one, "is_fully_addressable", True):
            return "append the rows of this process: numpy.asarray(shard.data) of rows.addressable_shards"
        return "append rows.astype('float32')"
    return ""


def _of_torch(tensor: Any) -> str:
    if getattr(tensor, "is_meta", False):
        return "a tensor on the device 'meta' has no values"
    call = ".detach()"
    if str(tensor.layout) != "torch.strided":
        call += ".to_dense()"
    if any(name in str(tensor.dtype) for name in ("bfloat16", "float8", "float4")):
        call += ".float()"
    if str(tensor.device) != "cpu":
        call += ".cpu()"
    return f"append rows{call}.numpy()"

"""JAX: batches of the ranks as one global batch of `jax.Array`, without silent changes of values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from shardkeep._extras import import_extra
from shardkeep.errors import PlanError, SchemaError
from shardkeep.tfrecord import Ragged

if TYPE_CHECKING:
    import jax
else:
    jax = import_extra("jax", "shardkeep.adapters.jax")

__all__ = ["make_global_batch"]


def make_global_batch(
    batch: Mapping[str, Any],
    sharding: jax.sharding.Sharding | jax.sharding.Mesh,
    *,
    columns: Iterable[str] | None = None,
) -> dict[str, jax.Array]:
    """Return the batches of all processes as one batch of global arrays.

    Each process passes the batch of its rank, and all call this for each step; every rank of a loader
    makes the same number of steps. Without ``jax.distributed`` it places the batch on the local devices.

    Parameters
    ----------
    batch : mapping of str to ndarray
        A batch of this process, with rows on the first axis and the same number of rows on every process:
        make the loader with ``remainder="mask"`` or ``"drop"``, not "short".
    sharding : Sharding or Mesh
        Division of the global arrays among the devices. With a mesh, its first axis divides the rows.
    columns : iterable of str, optional
        Columns to convert; the others stay on the host, such as byte strings, and the record numbers of
        ``with_ids=True``. All by default.

    Returns
    -------
    dict of str to jax.Array
        One array for each column, with the rows of all processes, as made by
        `jax.make_array_from_process_local_data`. Integers of 64 bits become 32 bits unless JAX has
        ``jax_enable_x64``.

    Raises
    ------
    SchemaError
        A column does not exist, has byte strings or rows of different lengths, or a number that JAX would
        change: without ``jax_enable_x64`` it wraps integers beyond 32 bits without a message.
    PlanError
        The sharding does not fit the shape of a column, or is not a sharding.

    Examples
    --------
    >>> import numpy as np
    >>> mesh = jax.make_mesh((jax.local_device_count(),), ("data",))
    >>> batch = {"x": np.arange(4), "name": np.array([b"a"] * 4, object)}
    >>> whole = make_global_batch(batch, mesh, columns=["x"])
    >>> whole["x"].tolist(), str(whole["x"].dtype)
    ([0, 1, 2, 3], 'int32')
    """
    if isinstance(sharding, jax.sharding.Mesh):
        rows = jax.sharding.PartitionSpec(sharding.axis_names[0])
        sharding = jax.sharding.NamedSharding(sharding, rows)
    elif not isinstance(sharding, jax.sharding.Sharding):
        raise PlanError(f"sharding must be a jax.sharding.Sharding or a Mesh, not {type(sharding).__name__}")
    names = list(batch if columns is None else columns)
    missing = [name for name in names if name not in batch]
    if missing:
        raise SchemaError(f"the batch has no column {missing[0]!r}; it has {', '.join(map(repr, batch))}")
    arrays = {name: _checked(name, batch[name], batch) for name in names}
    return {name: _placed(name, array, sharding) for name, array in arrays.items()}


def _checked(name: str, column: Any, batch: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    """Return a column in a dtype that JAX keeps."""
    array = None if isinstance(column, Ragged) else np.asarray(column)
    if array is None or array.dtype.kind in "OSU":
        kind = "rows of different lengths" if array is None else f"values of dtype {array.dtype}"
        fit = [
            other
            for other, one in batch.items()
            if not isinstance(one, Ragged) and np.asarray(one).dtype.kind not in "OSU"
        ]
        padded = f", or pad them by batch[{name!r}].to_padded()" if array is None else ""
        raise SchemaError(
            f"column {name!r} has {kind}, of which JAX has no arrays: leave it on the host by columns={fit}"
            + padded
        )
    kept = np.dtype(jax.dtypes.canonicalize_dtype(array.dtype))
    if array.dtype.kind in "iu" and kept != array.dtype and array.size:
        low, high = int(array.min()), int(array.max())
        limits = np.iinfo(kept)
        if low < limits.min or high > limits.max:
            raise SchemaError(
                f"column {name!r} has {low if low < limits.min else high}, which JAX would change, since"
                f" it has no {array.dtype} by default: jax.config.update('jax_enable_x64', True), or leave"
                " the column on the host by columns=[...]"
            )
        array = array.astype(kept)
    return array


def _placed(name: str, array: np.ndarray[Any, Any], sharding: jax.sharding.Sharding) -> jax.Array:
    try:
        return jax.make_array_from_process_local_data(sharding, array)
    except (ValueError, AssertionError) as error:
        raise PlanError(
            f"column {name!r} of shape {array.shape} does not fit the sharding ({error!s:.300}): batch_size"
            " must be a multiple of the number of this process's devices that divide the rows"
        ) from error

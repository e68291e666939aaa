"""Tensors of frameworks, by types that have their names and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5.storage.rows import as_first_rows, as_more_rows


def tensor(module: str, kind: str, error: Exception | np.ndarray[Any, Any], **attributes: Any) -> Any:
    """Return an object as a tensor of a framework, which converts to an array or raises."""

    def convert(self: Any, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
        if isinstance(error, Exception):
            raise error
        return error

    made = type(kind, (), {"__array__": convert, "dtype": "", **attributes})
    made.__module__ = module
    return made()


def torch(error: Exception | np.ndarray[Any, Any], **attributes: Any) -> Any:
    common = {"layout": "torch.strided", "dtype": "torch.float32", "device": "cpu", "is_meta": False}
    return tensor("torch", "Tensor", error, **common | attributes)


REFUSED = TypeError("can't convert")


@pytest.mark.parametrize(
    ("rows", "advice"),
    [
        (torch(RuntimeError("Can't call numpy()")), "append rows.detach().numpy()"),
        (torch(REFUSED, dtype="torch.bfloat16"), "append rows.detach().float().numpy()"),
        (torch(REFUSED, dtype="torch.float8_e4m3fn"), "append rows.detach().float().numpy()"),
        (torch(REFUSED, layout="torch.sparse_coo"), "append rows.detach().to_dense().numpy()"),
        (
            torch(REFUSED, dtype="torch.bfloat16", device="cuda:0"),
            "append rows.detach().float().cpu().numpy()",
        ),
        (torch(REFUSED, is_meta=True), "a tensor on the device 'meta' has no values"),
        (tensor("tensorflow.python", "RaggedTensor", REFUSED), "append shardkeep.Ragged(rows.values.numpy()"),
        (
            tensor("tensorflow.python", "SparseTensor", np.array(None)),
            "append tf.sparse.to_dense(rows).numpy()",
        ),
        (tensor("tensorflow.python", "EagerTensor", np.zeros(1, "V2")), "append tf.cast(rows, tf.float32)"),
        (tensor("tensorflow", "SymbolicTensor", NotImplementedError("symbolic")), "outside of tf.function"),
        (tensor("jax._src", "DynamicJaxprTracer", REFUSED), "append it outside of jax.jit"),
        (
            tensor("jaxlib", "ArrayImpl", RuntimeError("spans"), is_fully_addressable=False),
            "addressable_shards",
        ),
        (tensor("jaxlib", "ArrayImpl", np.zeros(1, "V2")), "append rows.astype('float32')"),
    ],
)
def test_a_tensor_that_cannot_be_kept_is_refused_with_the_call(rows: Any, advice: str) -> None:
    for refuse in (lambda: as_first_rows("x", rows), lambda: as_more_rows("x", rows, np.dtype("f4"), ())):
        with pytest.raises(SchemaError) as caught:
            refuse()
        assert str(caught.value).startswith(f"dataset 'x': this {type(rows).__name__} cannot be kept (")
        assert advice in str(caught.value)


def test_a_list_of_tensors_has_the_advice_of_the_first() -> None:
    with pytest.raises(SchemaError, match=r"append rows\.detach\(\)\.numpy\(\)"):
        as_first_rows("x", [torch(RuntimeError("Can't call numpy()"))])


def test_tensors_with_values_are_kept() -> None:
    assert as_first_rows("x", torch(np.arange(3))).tolist() == [0, 1, 2]
    strings = tensor("tensorflow", "EagerTensor", np.array([b"a", b"bc"], object))
    assert [row.tobytes() for row in as_first_rows("x", strings)] == [b"a", b"bc"]

"""Features of `tf.train.Example` and their decoding into batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from shardkeep.errors import SchemaError
from shardkeep.tfrecord.example.example import named_items

__all__ = ["Feature", "FixedLen", "Image", "VarLen", "describe"]

FeatureDType = Literal["int64", "float32", "bytes"]
ImageDType = Literal["float32", "uint8"]

_DTYPES = {
    "int64": "int64",
    "float32": "float32",
    "bytes": "bytes",
    "string": "bytes",
    "str": "bytes",
    "object": "bytes",
}


@dataclass(frozen=True)
class FixedLen:
    """A feature with the same number of values in every record.

    Parameters
    ----------
    shape : tuple of int, or int
        Shape of one record; () is a scalar. The record holds the values in C order.
    dtype : {"int64", "float32", "bytes"}
        One of the three types that an Example can hold; names of NumPy and TensorFlow are accepted.
    default : scalar or array-like, optional
        Value for a record without the feature; without a default such a record is a `SchemaError`. A scalar
        is used for every element.

    Notes
    -----
    In a batch: an array of shape ``(batch, *shape)``. Bytes come as an object array of `bytes`.

    Examples
    --------
    >>> FixedLen((), "int64")
    FixedLen(shape=(), dtype='int64', default=None)
    """

    shape: tuple[int, ...] = ()
    dtype: FeatureDType = "int64"
    default: Any = None

    def __post_init__(self) -> None:
        shape = tuple(self.shape) if isinstance(self.shape, Iterable) else (self.shape,)
        if not all(isinstance(n, (int, np.integer)) and 0 <= n < 1 << 63 for n in shape):
            raise SchemaError(f"shape={self.shape!r} is not valid: pass a tuple of sizes, each 0 or more")
        object.__setattr__(self, "shape", tuple(int(n) for n in shape))
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))


@dataclass(frozen=True)
class VarLen:
    """A feature with any number of values in a record.

    Parameters
    ----------
    dtype : {"int64", "float32", "bytes"}

    Notes
    -----
    In a batch: a `Ragged` with a row for each record. A record without the feature is an empty row.

    Examples
    --------
    >>> VarLen("float32")
    VarLen(dtype='float32')
    """

    dtype: FeatureDType

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _dtype_name(self.dtype))


@dataclass(frozen=True)
class Image:
    """A feature that holds one PNG, JPEG or WebP image, recognised by its bytes.

    Parameters
    ----------
    channels : {3, 1, 4, 0}
        Number of channels to convert to; 0 keeps those of the stored image.
    dtype : {"float32", "uint8"}
        float32 is scaled to [0, 1], as ``tf.image.convert_image_dtype`` does, and keeps all bits of a 16-bit
        PNG; uint8 is not scaled, and takes the high byte of 16 bits.
    size : tuple of int, optional
        (height, width) of every image in a batch; images of another size are resized (bilinear). Without
        it, the images of a batch must have one size.

    Notes
    -----
    In a batch: an array of shape (batch, height, width, channels).

    Examples
    --------
    >>> Image(channels=1, dtype="uint8")
    Image(channels=1, dtype='uint8', size=None)
    """

    channels: int = 3
    dtype: ImageDType = "float32"
    size: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.channels not in (0, 1, 3, 4):
            raise SchemaError(f"channels={self.channels!r} is not valid: pass 1, 3 or 4, or 0 for as stored")
        name = _numpy_name(self.dtype)
        if name not in ("float32", "uint8"):
            raise SchemaError(f'dtype={self.dtype!r} is not valid: pass "float32" or "uint8" for an image')
        object.__setattr__(self, "dtype", name)
        if self.size is not None:
            size = tuple(self.size) if isinstance(self.size, Iterable) else ()
            if len(size) != 2 or not all(isinstance(n, (int, np.integer)) and 1 <= n < 1 << 63 for n in size):
                raise SchemaError(f"size={self.size!r} is not valid: pass (height, width) in pixels")
            object.__setattr__(self, "size", (int(size[0]), int(size[1])))


Feature = FixedLen | VarLen | Image


def describe(features: Mapping[str, Feature]) -> list[tuple[Any, ...]]:
    """Return `features` in the form that `_core.Engine` takes.

    Raises
    ------
    SchemaError
        It is not a mapping, a name is not a str, a value is not a feature, or a default does not match its
        feature.
    """
    rows: list[tuple[Any, ...]] = []
    for name, feature in named_items("features", features, "FixedLen, VarLen or Image").items():
        if isinstance(feature, FixedLen):
            rows.append((name, "fixed", feature.dtype, feature.shape, _default(name, feature)))
        elif isinstance(feature, VarLen):
            rows.append((name, "var", feature.dtype, (), None))
        elif isinstance(feature, Image):
            rows.append((name, "image", feature.dtype, (feature.channels, *(feature.size or ())), None))
        else:
            raise SchemaError(f"feature {name!r}: expected FixedLen, VarLen or Image, found {feature!r}")
    return rows


def _default(name: str, feature: FixedLen) -> Any:
    if feature.default is None:
        return None
    given = np.asarray(feature.default, dtype=object if feature.dtype == "bytes" else None)
    if given.shape not in ((), feature.shape):
        raise SchemaError(
            f"feature {name!r}: the default has shape {given.shape}, the feature {feature.shape}"
        )
    if feature.dtype == "bytes":
        flat = [one.encode() if isinstance(one, str) else one for one in given.ravel().tolist()]
        if not all(isinstance(one, bytes) for one in flat):
            raise SchemaError(f"feature {name!r}: the default of a bytes feature must be bytes or str")
        return flat
    try:
        return given.astype(feature.dtype, casting="same_kind").ravel()
    except (TypeError, ValueError):
        raise SchemaError(
            f"feature {name!r}: the default {feature.default!r} is not {feature.dtype}"
        ) from None


def _numpy_name(dtype: Any) -> str:
    # tf.DType and torch.dtype have a name; np.dtype accepts NumPy's types and strings.
    name = getattr(dtype, "name", dtype)
    if isinstance(name, str):
        return str(name)
    try:
        return str(np.dtype(dtype).name)
    except TypeError:
        return repr(dtype)


def _dtype_name(dtype: Any) -> str:
    if dtype in (bytes, str):
        return "bytes"
    name = _numpy_name(dtype)
    if name not in _DTYPES:
        raise SchemaError(f'dtype={dtype!r} is not valid: pass "int64", "float32" or "bytes"')
    return _DTYPES[name]

"""Values that are read and written without a conversion between their type in the file and NumPy's.

NumPy pads text of a fixed length with NULs (H5T_STR_NULLPAD). HDF5 converts it to text that ends at a NUL, or
that is padded with spaces: of a text without room for the NUL the last letter is lost, and text after a NUL
too. So the memory type of such text is the type in the file, padding and character set included, and the
bytes are the same on both sides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from shardkeep.hdf5.storage.dtypes import flat_dtype

__all__ = ["ExactValue", "as_read", "converts_text", "memory_type", "obstacle_to_text", "read_exactly"]

_Type = h5py.h5t


def memory_type(kind: h5py.h5t.TypeID, dtype: np.dtype[Any]) -> h5py.h5t.TypeID:
    """Return a memory type for arrays of a dtype in which fixed text has the bytes that it has in a file.

    Parameters
    ----------
    kind : h5py.h5t.TypeID
        Type in the file.
    dtype : dtype
        Type with which h5py reads it; arrays of arrays are one array.
    """
    code = kind.get_class()
    if code == _Type.STRING and not kind.is_variable_str():
        return kind
    if code == _Type.ARRAY and dtype.subdtype is not None:
        dims = kind.get_array_dims()
        element = np.dtype((dtype.base, dtype.shape[len(dims) :]))
        return _Type.array_create(memory_type(kind.get_super(), element), dims)
    if code == _Type.COMPOUND and dtype.names is not None:
        result = _Type.create(_Type.COMPOUND, dtype.itemsize)
        for number, name in enumerate(dtype.names):
            field, offset = dtype.fields[name][:2]  # type: ignore[index]
            member = memory_type(kind.get_member_type(number), flat_dtype(field))
            result.insert(kind.get_member_name(number), offset, member)
        return result
    return _Type.py_create(dtype)


def converts_text(kind: h5py.h5t.TypeID) -> bool:
    """Return whether HDF5 changes fixed text of a type when NumPy's own type is the memory type."""
    code = kind.get_class()
    if code == _Type.STRING:
        return not kind.is_variable_str() and kind.get_strpad() != _Type.STR_NULLPAD
    if code == _Type.ARRAY:
        return converts_text(kind.get_super())
    if code == _Type.COMPOUND:
        return any(converts_text(kind.get_member_type(number)) for number in range(kind.get_nmembers()))
    return False


def obstacle_to_text(values: np.ndarray[Any, Any] | None, kind: h5py.h5t.TypeID) -> str | None:
    """Return why h5py cannot write fixed text in values of variable length, as a clause; None if it can."""
    if values is None or kind.get_class() != _Type.VLEN:
        return None
    text = kind.get_super()
    if text.get_class() != _Type.STRING or text.is_variable_str() or text.get_strpad() != _Type.STR_NULLTERM:
        return None
    if all(len(one) < text.get_size() for value in values.flat for one in np.atleast_1d(value).tolist()):
        return None
    return "has fixed text without room for its NUL in values of variable length, which h5py cannot write"


def read_exactly(dataset: h5py.h5d.DatasetID, dtype: np.dtype[Any], rows: slice) -> np.ndarray[Any, Any]:
    """Return rows of a dataset with the bytes that they have in the file."""
    space = dataset.get_space()
    shape = (rows.stop - rows.start, *space.shape[1:])
    values = np.empty(shape, dtype)
    space.select_hyperslab((rows.start, *(0 for _ in shape[1:])), shape)
    dataset.read(h5py.h5s.create_simple(shape), space, values, memory_type(dataset.get_type(), dtype))
    return values


def as_read(
    values: np.ndarray[Any, Any], kind: h5py.h5t.TypeID, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """Return values of a file's type as h5py reads them; those of `read_exactly` may differ after a NUL."""
    if not converts_text(kind) or not values.size:
        return values
    values = np.array(values, order="C")
    _Type.convert(memory_type(kind, dtype), _Type.py_create(dtype), values.nbytes // dtype.itemsize, values)
    return values


@dataclass(frozen=True)
class ExactValue:
    """Value of an attribute or a dataset, with its type in the file.

    Attributes
    ----------
    type_code : bytes
        The type as H5Tencode writes it.
    data : ndarray or None
        The value in `memory_type`; None for the null dataspace.
    dtype : dtype
    """

    type_code: bytes
    data: np.ndarray[Any, Any] | None
    dtype: np.dtype[Any]

    @classmethod
    def read(cls, item: h5py.h5a.AttrID | h5py.h5d.DatasetID, dtype: np.dtype[Any]) -> ExactValue | None:
        """Read a value; None if its type is the one that HDF5 has for the dtype: NumPy's value is exact."""
        kind = item.get_type()
        if _Type.py_create(dtype, logical=True).equal(kind):
            return None
        space = item.get_space()
        if space.get_simple_extent_type() == h5py.h5s.NULL:
            return cls(kind.encode(), None, dtype)
        data = np.empty(space.shape, dtype)
        _transfer(item, "read", data, memory_type(kind, dtype))
        return cls(kind.encode(), data, dtype)

    @property
    def kind(self) -> h5py.h5t.TypeID:
        """The type in the file."""
        return _Type.decode(self.type_code)

    @property
    def space(self) -> h5py.h5s.SpaceID:
        """The dataspace of the value."""
        if self.data is None:
            return h5py.h5s.create(h5py.h5s.NULL)
        inner = 0 if self.dtype.subdtype is None else len(self.dtype.shape)
        return h5py.h5s.create_simple(self.data.shape[: self.data.ndim - inner])

    def write(self, item: h5py.h5a.AttrID | h5py.h5d.DatasetID) -> None:
        """Write the value into an object of this type and dataspace."""
        if self.data is not None and self.data.size:
            _transfer(item, "write", self.data, memory_type(self.kind, self.dtype))


def _transfer(item: Any, what: str, data: np.ndarray[Any, Any], kind: h5py.h5t.TypeID) -> None:
    if isinstance(item, h5py.h5a.AttrID):
        getattr(item, what)(data, kind)
    else:
        getattr(item, what)(h5py.h5s.ALL, h5py.h5s.ALL, data, kind)

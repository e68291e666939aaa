"""Types of HDF5 values that h5py cannot read and write again."""

from __future__ import annotations

import h5py

__all__ = ["obstacle_to_values"]

_Type = h5py.h5t


def obstacle_to_values(kind: h5py.h5t.TypeID, *, varies: bool = False) -> str | None:
    """Return why values of a type cannot be copied by h5py, as what has them; None if they can.

    Parameters
    ----------
    kind : h5py.h5t.TypeID
        With a NumPy dtype.
    varies : bool
        Whether the type is that of the elements of a variable-length value.
    """
    code = kind.get_class()
    if code == _Type.OPAQUE and not _Type.py_create(kind.dtype, logical=True).equal(kind):
        return "has opaque values with a tag, which h5py cannot read"
    if code == _Type.VLEN or (code == _Type.STRING and kind.is_variable_str()):
        if varies:
            return "has variable-length values within variable-length values, which h5py cannot copy"
        if code == _Type.STRING:
            return None
        if kind.get_super().get_class() == _Type.ARRAY:
            return "has variable-length values of an array type, which h5py cannot write"
        return obstacle_to_values(kind.get_super(), varies=True)
    if code == _Type.ARRAY:
        return obstacle_to_values(kind.get_super(), varies=varies)
    if code == _Type.COMPOUND:
        members = (kind.get_member_type(number) for number in range(kind.get_nmembers()))
        return next(filter(None, (obstacle_to_values(one, varies=varies) for one in members)), None)
    return None

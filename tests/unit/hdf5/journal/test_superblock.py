import h5py
import pytest

from shardkeep.hdf5.journal.superblock import SUPERBLOCK_BYTES, without_flags


def test_cleared_flags_are_those_of_a_closed_file(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = 1
    closed = path.read_bytes()[:SUPERBLOCK_BYTES]
    assert without_flags(closed) == closed
    assert without_flags(closed[:11] + b"\x01" + closed[12:]) == closed


@pytest.mark.parametrize("block", [b"", bytes(48), b"\x89HDF\r\n\x1a\n\x00" + bytes(39)])
def test_other_bytes_are_refused(block):
    with pytest.raises(ValueError, match="version 3"):
        without_flags(block)

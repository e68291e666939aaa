import h5py
import numpy as np

from shardkeep.hdf5.storage.layout import chunk_rows_of

F4 = np.dtype("f4")


def test_chunks_are_half_a_mebibyte_at_most():
    assert chunk_rows_of(F4, (128,)) == 1024
    assert chunk_rows_of(np.dtype("u1"), ()) == 512 * 1024
    assert chunk_rows_of(F4, (1_000_000,)) == 1
    assert chunk_rows_of(F4, (0,)) > 1e9
    assert chunk_rows_of(h5py.string_dtype(), ()) == 4096
    assert chunk_rows_of(h5py.string_dtype(), (10_000,)) == 1

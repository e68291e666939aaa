import itertools

from hypothesis import given
from hypothesis import strategies as st

from shardkeep.hdf5.journal.extent_map import ExtentMap

_WRITES = st.lists(st.tuples(st.integers(0, 60), st.binary(max_size=20)), max_size=30)


@given(_WRITES, st.integers(0, 60), st.integers(0, 40))
def test_overlay_reads_what_was_put_as_in_a_sparse_file(writes, offset, size):
    pieces, plain = ExtentMap(), [None] * 100
    for where, data in writes:
        pieces.put(where, data)
        plain[where : where + len(data)] = data
    view = bytearray(b"?" * size)
    pieces.overlay(offset, view)
    assert list(view) == [ord("?") if one is None else one for one in plain[offset : offset + size]]
    found = list(pieces)
    assert found == sorted(found)
    assert all(start + len(data) <= later for (start, data), (later, _) in itertools.pairwise(found))
    assert pieces.bytes == sum(one is not None for one in plain) == sum(len(data) for _, data in found)


@given(_WRITES, _WRITES)
def test_update_replaces_bytes_of_the_earlier_map(first, second):
    one, other, both = ExtentMap(), ExtentMap(), ExtentMap()
    for target, writes in ((one, first), (other, second), (both, [*first, *second])):
        for where, data in writes:
            target.put(where, data)
    one.update(other)
    mine, theirs = bytearray(100), bytearray(100)
    one.overlay(0, mine)
    both.overlay(0, theirs)
    assert mine == theirs

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.hdf5.storage.content_hash import content_crc
from shardkeep.hdf5.storage.rows import as_first_rows


@given(st.lists(st.integers(0, 50), min_size=1, max_size=5), st.sampled_from(["f4", ">i8", "S3", "?", "c8"]))
def test_the_hash_does_not_depend_on_the_pieces(cuts, dtype):
    rows = np.arange(51 * 3).astype("u1").view(bool if dtype == "?" else "u1").astype(dtype).reshape(51, 3)
    crc, start = 0, 0
    for cut in sorted(cuts):
        crc = content_crc(rows[start:cut], crc)
        start = cut
    assert content_crc(rows[start:], crc) == content_crc(rows)


def test_the_hash_sees_order_lengths_and_every_bit():
    text = as_first_rows("x", ["ab", "c"])
    assert content_crc(text) != content_crc(as_first_rows("x", ["a", "bc"]))
    assert content_crc(text) != content_crc(text[::-1])
    padded = np.zeros(2, np.dtype([("a", "i1"), ("b", "f8")], align=True))
    dirty = np.frombuffer(b"\0" + b"\1" * 7 + bytes(24), padded.dtype)
    assert (padded == dirty).all()
    assert content_crc(padded) == content_crc(dirty)
    mixed = np.array([(1, b"a"), (2, b"b")], [("n", "i4"), ("s", "O")])
    assert content_crc(mixed[1:], content_crc(mixed[:1])) == content_crc(mixed)
    assert content_crc(mixed) != content_crc(mixed[::-1])
    rows = np.zeros(100, "u1")
    hashes = {content_crc(rows)}
    for i in range(100):
        rows[i] ^= 4
        hashes.add(content_crc(rows))
    assert len(hashes) == 101
    assert content_crc(np.zeros((4, 0), "f4")) == 0

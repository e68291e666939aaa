"""Names of data files."""

import pytest

from shardkeep.files.kinds.data_names import is_bare_shard, kind_of_name


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.tfrecord", "tfrecord"),
        ("A.TFRecords", "tfrecord"),
        ("a.tfrec.gz", "tfrecord"),
        ("a.tfrecord-00000-of-00001", "tfrecord"),
        ("events.out.tfevents.1700000000.host", "tfrecord"),
        ("a.hdf5", "hdf5"),
        ("a.h5ad", "hdf5"),
        ("a.tfrecord.skidx", None),
        ("a.h5.lock", None),
        ("notes.txt", None),
        ("train-00000-of-00004", None),
    ],
)
def test_the_extension_decides(name: str, kind: str | None) -> None:
    assert kind_of_name(name) == kind


def test_a_shard_may_have_no_extension() -> None:
    assert is_bare_shard("train-00000-of-00004") and is_bare_shard("train_0_of_4")
    assert not is_bare_shard("train-00000-of-00004.txt") and not is_bare_shard("train")

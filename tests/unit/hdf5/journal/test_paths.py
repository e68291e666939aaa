import os

from shardkeep.hdf5.journal.paths import log_path, readers_path, real_name


def test_files_of_a_link_are_named_after_its_target(tmp_path):
    target, link = str(tmp_path / "all.h5"), str(tmp_path / "link.h5")
    os.symlink(target, link)
    assert real_name(link) == real_name(target) == target
    assert log_path(link) == f"{target}.redo"
    assert readers_path(link) == f"{target}.readers"

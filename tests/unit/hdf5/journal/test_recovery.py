import os
import shutil

import pytest

from shardkeep.errors import FormatError, NotFoundError
from shardkeep.hdf5.journal.live_file import LiveFile
from shardkeep.hdf5.journal.paths import log_path
from shardkeep.hdf5.journal.recovery import Recovery, recover


@pytest.fixture
def killed(tmp_path):
    """Return a file with one commit in its log, and seven bytes after it."""
    path = str(tmp_path / "a.bin")
    with open(path, "wb") as file:
        file.write(bytes(100))
    live = LiveFile(path, synced=False)
    live.change(60, b"changed")
    live.write_rows(100, b"row")
    live.seek(100)
    live.write(b"row")
    live.write_commit(live.begin_commit())
    live.write_rows(103, b"dropped")
    live.abandon()
    return path


def test_the_last_commit_is_restored_and_later_bytes_are_cut_off(killed):
    assert recover(killed) == Recovery(commits=1, dropped_bytes=7)
    with open(killed, "rb") as file:
        assert file.read() == bytes(60) + b"changed" + bytes(33) + b"row"
    assert recover(killed) is None


def test_recovering_twice_gives_the_same_file(killed):
    log = log_path(killed)
    shutil.copy(log, f"{log}.copy")
    recover(killed)
    with open(killed, "rb") as file:
        once = file.read()
    os.rename(f"{log}.copy", log)
    assert recover(killed) == Recovery(commits=1)
    with open(killed, "rb") as file:
        assert file.read() == once


def test_a_log_of_another_file_changes_nothing(killed):
    other = b"other" * 40
    with open(killed, "wb") as file:
        file.write(other)
    with pytest.raises(FormatError, match="is not the file of which"):
        recover(killed)
    with open(killed, "rb") as file:
        assert file.read() == other
    os.unlink(killed)
    with pytest.raises(NotFoundError, match="put the file of that log back"):
        recover(killed)
    assert os.path.exists(log_path(killed))

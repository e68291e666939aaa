"""Devices, named pipes, sockets and folders: never written, never replaced, by any writer."""

import contextlib
import os
import socket
import stat

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep import jobs
from shardkeep.collector.protocol.keys import new_key
from shardkeep.errors import ExistsError, FormatError
from shardkeep.files.kinds.special import describe_special, refuse_special
from shardkeep.tfrecord import write_text_index


def _named_pipe(path):
    os.mkfifo(path)


def _socket(path):
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))


def _device(path):
    # The numbers of /dev/null, in a folder of the test.
    with contextlib.suppress(PermissionError):
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    if not path.exists():
        pytest.skip("this user may not make a device")


KINDS = {"named pipe": _named_pipe, "socket": _socket, "device": _device, "folder": os.mkdir}


def _writer(path, sources, exists="replace"):
    with sk.tfrecord.Writer(path, exists=exists) as w:
        w.write(b"x")


def _shards(path, sources, **options):
    with sk.tfrecord.ShardWriter(f"{path.parent}/{{shard}}", exists="replace", **options) as w:
        w.write(b"x")


def _open(path, sources, mode="w"):
    with sk.hdf5.open(path, mode) as file:
        file["x"] = [1]


def _publish_path(path, sources):
    with sk.files.publish_path(path, exists="replace") as name, open(name, "wb") as file:
        file.write(b"x")


def _publish_set(path, sources):
    with sk.files.publish_set([path.parent / "first", path], exists="replace") as files:
        files[1].write(b"x")


WRITERS = {
    "Writer": _writer,
    "Writer fail": lambda path, sources: _writer(path, sources, "fail"),
    "Writer append": lambda path, sources: _writer(path, sources, "append"),
    "ShardWriter": lambda path, sources: _shards(path, sources, shards=1),
    "ShardWriter rolling": lambda path, sources: _shards(path, sources, shard_records=1),
    "publish_path": _publish_path,
    "publish_set": _publish_set,
    "split": lambda path, sources: jobs.split(
        sources / "in.tfrecord", f"{path.parent}/{{shard}}", shards=1, exists="replace"
    ),
    "concat": lambda path, sources: jobs.concat(sources / "in.tfrecord", path, exists="replace"),
    "pack": lambda path, sources: jobs.pack(
        {"x": np.arange(3)}, f"{path.parent}/{{shard}}", shards=1, exists="replace"
    ),
    "write_text_index": lambda path, sources: write_text_index(
        sources / "in.tfrecord", path, exists="replace"
    ),
    "merge": lambda path, sources: sk.hdf5.merge([sources / "in.h5"], path, exists="replace"),
    "hdf5.open w": _open,
    "hdf5.open a": lambda path, sources: _open(path, sources, "a"),
    "hdf5.open r+": lambda path, sources: _open(path, sources, "r+"),
    "new_key": lambda path, sources: new_key(str(path), replace=True),
    "Collector": lambda path, sources: sk.hdf5.Collector(path).__enter__(),
}


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    with sk.tfrecord.Writer(folder / "in.tfrecord") as w:
        w.write(b"x")
    with h5py.File(folder / "in.h5", "w") as file:
        file["x"] = [1]
    return folder


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_writer_refuses_it_and_touches_nothing(tmp_path, sources, writer, kind):
    folder = tmp_path / "out"
    folder.mkdir()
    path = folder / "0"
    KINDS[kind](path)
    before = os.lstat(path)
    with pytest.raises((ExistsError, FormatError), match=f"is a {kind}: "):
        WRITERS[writer](path, sources)
    assert os.path.samestat(os.lstat(path), before)
    assert os.listdir(folder) == ["0"]


@pytest.mark.parametrize("exists", ["fail", "replace", "append"])
def test_a_link_to_one_is_refused(tmp_path, exists):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    with pytest.raises(ExistsError, match="link' is a named pipe"):
        _writer(tmp_path / "link", None, exists)
    assert sorted(os.listdir(tmp_path)) == ["link", "pipe"]


def test_standard_output_is_refused_while_it_is_a_pipe(tmp_path):
    read, write = os.pipe()
    try:
        with pytest.raises(ExistsError, match="is a named pipe"):
            _writer(f"/dev/fd/{write}", None)
    finally:
        os.close(read)
        os.close(write)


def test_one_that_appears_during_the_work_is_not_replaced(tmp_path):
    with (
        pytest.raises(ExistsError, match="is a named pipe"),
        sk.files.publish(tmp_path / "a", exists="replace") as file,
    ):
        file.write(b"x")
        os.mkfifo(tmp_path / "a")
    assert stat.S_ISFIFO(os.lstat(tmp_path / "a").st_mode)
    assert os.listdir(tmp_path) == ["a"]


def test_a_link_to_a_regular_file_is_followed(tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "link").symlink_to("old")
    refuse_special(str(tmp_path / "link"))
    with sk.files.publish(tmp_path / "link", exists="replace") as file:
        file.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "old").read_bytes() == b"new"


def test_a_regular_file_and_a_link_have_no_special_kind(tmp_path):
    assert describe_special(stat.S_IFREG | 0o644) is None
    assert describe_special(stat.S_IFLNK | 0o777) is None
    refuse_special(str(tmp_path / "free"))

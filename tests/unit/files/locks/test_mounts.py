import os

import pytest

from shardkeep.files.locks import mounts
from shardkeep.files.locks.mounts import Mount, mount_at, mount_of, parse_mountinfo

# A container on a host with a cluster's file systems, as /proc/self/mountinfo shows it.
CONTAINER = r"""
589 533 0:116 / / rw,relatime master:259 - overlay overlay rw,lowerdir=/l/A:/l/B,upperdir=/u/d,workdir=/u/w
590 589 0:119 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
592 589 0:120 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
700 589 259:2 /srv/jobs/7 /work rw,relatime - ext4 /dev/nvme0n1p2 rw,errors=remount-ro
701 589 0:61 /home/ada /home/ada rw,relatime - nfs4 10.0.0.5:/export rw,vers=4.2,hard,local_lock=none
702 589 0:62 / /old rw,relatime shared:5 master:2 - nfs filer:/old rw,vers=3,nolock,proto=tcp,local_lock=all
703 589 0:63 / /scratch rw - lustre 10.1.0.1@o2ib:/lus rw,checksum,localflock,user_xattr,lazystatfs
704 589 0:64 / /mnt/my\040remote\011data rw,nosuid,nodev,relatime - fuse.sshfs ada@host:/x\134y rw,user_id=0
706 589 0:66 / /home/ada/bucket rw,nosuid,nodev,relatime - fuse mountpoint-s3 rw,user_id=0,group_id=0
707 589 0:67 / /scratch rw,relatime - tmpfs tmpfs rw
"""


@pytest.fixture
def container():
    return parse_mountinfo(CONTAINER)


def test_lines_of_mountinfo_are_parsed(container):
    found = {mount.number: mount for mount in container}
    assert found[589] == Mount(
        589,
        "/",
        "overlay",
        "overlay",
        ("rw", "relatime", "rw", "lowerdir=/l/A:/l/B", "upperdir=/u/d", "workdir=/u/w"),
    )
    assert (found[700].point, found[700].kind) == ("/work", "ext4"), "the root of a bind mount is no point"
    assert found[702].option("local_lock") == "all"
    assert found[702].option("nolock") == ""
    assert found[703].option("flock") is None
    assert (found[704].point, found[704].source) == ("/mnt/my remote\tdata", "ada@host:/x\\y")
    assert (found[706].kind, found[706].source) == ("fuse", "mountpoint-s3")


def test_an_empty_source_is_a_field(container):
    # The kernel writes nothing between two spaces for an empty source.
    lines = parse_mountinfo("9 1 0:9 / /e rw - tmpfs  rw,size=1k")
    assert (lines[0].kind, lines[0].source, lines[0].option("size")) == ("tmpfs", "", "1k")


@pytest.mark.parametrize(
    "line", ["", "36 35 98:0 / /mnt rw", "x 35 98:0 / /m rw - ext4 /dev/a rw", "1 2 - 3"]
)
def test_malformed_lines_are_ignored(line):
    assert parse_mountinfo(line) == []


@pytest.mark.parametrize(
    ("path", "number"),
    [
        ("/", 589),
        ("/tmp/a", 589),
        ("/work/run/a.h5", 700),
        ("/workshop/a", 589),
        ("/home/ada", 701),
        ("/home/ada/bucket/a", 706),
        ("/mnt/my remote\tdata/a", 704),
        ("/scratch/a", 707),  # mounted over the other one
    ],
)
def test_longest_and_last_mount_point_matches(container, path, number):
    found = mount_at(path, container)
    assert found is not None
    assert found.number == number


def test_without_mounts_no_mount_is_found():
    assert mount_at("/a", []) is None


def test_mounts_of_this_machine_are_found(tmp_path):
    mount = mount_of(str(tmp_path))
    if mount is None:
        pytest.skip("no /proc here")
    assert str(tmp_path.resolve()).startswith(mount.point)
    link = tmp_path / "link"
    link.symlink_to("/proc")
    proc = mount_of(str(link))
    assert proc is not None
    assert proc.kind == "proc"


@pytest.mark.parametrize("missing", ["fdinfo", "mountinfo"])
def test_without_mount_ids_the_path_decides(tmp_path, monkeypatch, missing):
    whole = mount_of(str(tmp_path))
    if missing == "fdinfo":
        monkeypatch.setattr(mounts, "_mount_number", lambda folder: None)
        assert mount_of(str(tmp_path)) == whole
        (tmp_path / "link").symlink_to("/proc")
        linked = mount_of(str(tmp_path / "link"))
        assert linked is not None
        assert linked.kind == "proc"
    else:
        monkeypatch.setattr(mounts, "_MOUNTINFO", str(tmp_path / "none"))
        assert mount_of(str(tmp_path)) is None


def test_a_mount_that_hides_another_is_found_by_its_number(tmp_path, monkeypatch):
    """The text alone would select the wrong mount: the later line is not the visible one."""
    number = mounts._mount_number(str(tmp_path))
    if number is None:
        pytest.skip("no /proc here")
    text = tmp_path / "mountinfo"
    text.write_text(
        f"{number} 1 0:5 / {tmp_path} rw - ext4 /dev/a rw\n{number + 1} 1 0:6 / {tmp_path} rw - nfs4 h:/ rw\n"
    )
    monkeypatch.setattr(mounts, "_MOUNTINFO", os.fspath(text))
    found = mount_of(str(tmp_path))
    assert found is not None
    assert found.kind == "ext4"

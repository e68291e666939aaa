"""Another user of the same folder, whose prepared files are neither trusted nor written through."""

import contextlib
import json
import os
import socket
import stat
import struct
import warnings

import h5py
import numpy as np
import pytest

import shardkeep as sk
from shardkeep.collector.protocol.address_file import find_address_file, write_address_file
from shardkeep.collector.protocol.keys import new_key
from shardkeep.collector.server.process import recover_file
from shardkeep.collector.store.store import Store
from shardkeep.errors import CollectorError, UntrustedFileError
from shardkeep.hdf5.journal.redo_log import LogHeader, RedoLog
from shardkeep.hdf5.journal.superblock import SUPERBLOCK_BYTES
from shardkeep.tfrecord.index import binary
from tests.procs.collector_run import collecting, start_collector
from tests.second_user import OTHER, THIRD, needs_root, run_as, shared_folder

WORLD = sk.World(0, 1)
PRECIOUS = b"precious\n" * 100


@pytest.fixture
def precious(tmp_path):
    path = tmp_path / "precious"
    path.write_bytes(PRECIOUS)
    yield path
    assert path.read_bytes() == PRECIOUS


@pytest.fixture
def shared():
    with shared_folder() as folder:
        yield folder


def _write_as(user, path, data, mode=0o644):
    def write():
        with open(path, "xb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)

    run_as(user, write)


# -- links of the same user --------------------------------------------------------------------------------


def _collect(folder):
    with collecting(folder / "a.h5") as collector, collector.connect(WORLD) as client:
        client.append("x", 1.0)


def _work(folder):
    with sk.hdf5.WorkerFile(folder, WORLD) as out:
        out.append("x", [1])
        out.commit(step=1)


def _open_to_write(folder):
    with sk.hdf5.open(folder / "a.h5", "w") as file:
        file["x"] = 1


def _store(folder):
    Store(str(folder / "a.h5"), synced=False).close()


@pytest.mark.parametrize(
    ("act", "name", "refused"),
    [
        (_work, "rank-00000/writer.lock", True),
        (_open_to_write, "a.h5.lock", True),
        (_open_to_write, "a.h5.redo", False),
        (_store, "a.h5.lock", True),
        (_store, "a.h5.redo", True),
        (_collect, "a.h5.readers.lock", False),
        (_collect, "a.h5.collector.json", False),
    ],
)
@pytest.mark.parametrize("target", ["precious", "missing"])
def test_link_with_the_name_of_a_sidecar_changes_no_other_file(
    tmp_path, precious, act, name, refused, target
):
    folder = tmp_path / "shared"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(tmp_path / target)
    if refused:
        with pytest.raises(UntrustedFileError, match="is a symbolic link"):
            act(folder)
    else:
        act(folder)
    assert sorted(os.listdir(tmp_path)) == ["precious", "shared"]


def test_a_temporary_file_that_was_replaced_by_a_link_is_not_written_through(tmp_path, precious):
    folder = tmp_path / "shared"
    folder.mkdir()
    writer = sk.tfrecord.ShardWriter(folder / "{shard}.tfrecord", shards=2)
    writer.write(b"mine")
    for name in os.listdir(folder):
        os.unlink(folder / name)
        (folder / name).symlink_to(precious)
    with pytest.raises(UntrustedFileError, match="temporary file"):
        writer.close()


def test_folder_with_the_name_of_a_socket_is_not_removed(tmp_path, monkeypatch):
    from shardkeep.collector.protocol.address import SocketFolder

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    place = SocketFolder(str(tmp_path / "a.h5"))
    os.rename(place.folder, tmp_path / "away")
    os.mkdir(place.folder)
    with open(os.path.join(place.folder, "thesis.tex"), "w") as file:
        file.write("mine")
    place.close()
    assert os.listdir(place.folder) == ["thesis.tex"]


# -- notes and sockets -------------------------------------------------------------------------------------


def _stranger(path):
    """Return a socket that another user seems to have made; this process sees each connection."""
    one = socket.socket(socket.AF_UNIX)
    one.bind(str(path))
    os.chmod(path, 0o777)
    os.chown(path, OTHER, OTHER)
    one.listen()
    one.setblocking(False)
    return one


def _no_connection_came(listener):
    with pytest.raises(BlockingIOError):
        listener.accept()
    return True


def _connect_to(place, timeout_s=20.0, **options):
    with sk.hdf5.connect(place, WORLD, timeout_s=timeout_s, **options):
        raise AssertionError("there was an answer")


@needs_root
@pytest.mark.parametrize("victim", [0, THIRD])
def test_address_file_of_another_user_is_not_followed(shared, victim):
    path = shared / "all.h5"
    with _stranger(shared / "evil") as listener:
        run_as(OTHER, lambda: write_address_file(str(path), f"ipc://{shared}/evil", None))
        for mode in (0o600, 0o644, 0o666):
            os.chmod(f"{path}.collector.json", mode)
            for place in (path, shared):
                with pytest.raises(UntrustedFileError, match=f"address file .* user id {OTHER}"):
                    run_as(victim, lambda place=place: find_address_file(str(place)))
        with pytest.raises(UntrustedFileError):
            _connect_to(path)
        assert _no_connection_came(listener)


@needs_root
def test_address_file_of_another_user_does_not_hide_the_collector_of_the_folder(shared):
    run_as(OTHER, lambda: write_address_file(str(shared / "evil.h5"), "ipc:///nowhere", None))
    run_as(OTHER, lambda: os.symlink("/tmp/other.h5", shared / "named.h5"))
    with collecting(shared / "all.h5"), sk.hdf5.connect(shared, WORLD) as client:
        client.append("x", [1])
    with sk.hdf5.open(shared / "all.h5") as file:
        assert file["x"][:].tolist() == [1]


@needs_root
def test_collector_replaces_the_address_file_of_another_user(shared):
    note = shared / "all.h5.collector.json"
    run_as(OTHER, lambda: write_address_file(str(shared / "all.h5"), "ipc:///nowhere", None))
    os.chmod(note, 0o666)
    with collecting(shared / "all.h5"):
        assert (note.stat().st_uid, stat.S_IMODE(note.stat().st_mode)) == (0, 0o600)
        with sk.hdf5.connect(shared / "all.h5", WORLD) as client:
            client.append("x", [1])
    assert not note.exists()


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder", "others write"])
def test_address_file_that_others_can_write_is_not_followed(tmp_path, kind):
    path, real = tmp_path / "all.h5", tmp_path / "real"
    write_address_file(str(path), "ipc:///nowhere", None)
    place = f"{path}.collector.json"
    if kind == "hard link":
        os.link(place, real)
    elif kind == "others write":
        os.chmod(place, 0o620)
    else:
        os.rename(place, real)
        {"link": lambda: os.symlink(real, place), "pipe": lambda: os.mkfifo(place)}.get(
            kind, lambda: os.mkdir(place)
        )()
    with pytest.raises(UntrustedFileError):
        find_address_file(str(path))


def test_address_file_with_tcp_and_no_key_is_refused(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        write_address_file(str(tmp_path / "all.h5"), f"tcp://127.0.0.1:{listener.getsockname()[1]}", None)
        with pytest.raises(CollectorError, match="needs the key"):
            _connect_to(tmp_path / "all.h5")
        assert _no_connection_came(listener)


@needs_root
def test_a_socket_of_another_user_is_not_connected_to(shared):
    with _stranger(shared / "evil") as listener:
        with pytest.raises(UntrustedFileError, match=f"was made by .*user id {OTHER}"):
            _connect_to(f"ipc://{shared}/evil")
        # Nor through a note of this user: the socket may have been replaced since.
        write_address_file(str(shared / "all.h5"), f"ipc://{shared}/evil", None)
        with pytest.raises(UntrustedFileError, match="was made by"):
            _connect_to(shared / "all.h5")
        assert _no_connection_came(listener)


@pytest.mark.parametrize("kind", ["link", "file", "pipe"])
def test_client_connects_only_to_sockets(tmp_path, kind):
    place = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "real"))
        listener.listen()
        listener.setblocking(False)
        {"link": lambda: place.symlink_to("real"), "file": place.touch, "pipe": lambda: os.mkfifo(place)}[
            kind
        ]()
        with pytest.raises(UntrustedFileError, match="is not a socket"):
            _connect_to(f"ipc://{place}")
        assert _no_connection_came(listener)


@pytest.mark.parametrize("kind", ["link", "file"])
def test_collector_removes_no_file_with_the_name_of_its_socket(tmp_path, precious, kind):
    place = precious
    if kind == "link":
        place = tmp_path / "s"
        place.symlink_to(precious)
    with pytest.raises(CollectorError, match="is not a socket"):
        sk.hdf5.Collector(tmp_path / "all.h5", f"ipc://{place}")
    assert os.path.lexists(place)


@needs_root
def test_client_does_not_reconnect_to_another_user(shared, tmp_path):
    """The collector dies, and another user listens under its name: rows that wait are not sent there."""
    address = f"ipc://{shared}/s"
    collector = start_collector(tmp_path / "all.h5", address=address)
    client = sk.hdf5.connect(address, WORLD, timeout_s=3.0)
    client.append("x", [1])
    client.flush()
    collector.kill()
    collector.join()
    os.unlink(shared / "s")
    with _stranger(shared / "s") as listener:
        client.append("x", [2])
        with pytest.raises((CollectorError, UntrustedFileError)):
            client.flush()
        assert _no_connection_came(listener)
    refused = (CollectorError, UntrustedFileError)
    with pytest.warns(ResourceWarning, match="may be lost"), contextlib.suppress(*refused):
        client.close()


@needs_root
def test_client_reconnects_to_a_restarted_collector(shared, tmp_path):
    address = f"ipc://{shared}/s"
    collector = start_collector(tmp_path / "all.h5", address=address)
    with sk.hdf5.connect(address, WORLD) as client:
        client.append("x", [1])
        client.flush()
        collector.kill()
        collector.join()
        with collecting(tmp_path / "all.h5", address=address):
            client.append("x", [2])
            client.flush()
            client.close()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [1, 2]


@needs_root
def test_a_collector_takes_no_client_of_another_user(shared, tmp_path):
    """Even if a default ACL of the folder grants this user access to the socket."""
    address = f"ipc://{shared}/s"
    with collecting(tmp_path / "all.h5", address=address):
        assert stat.S_IMODE((shared / "s").stat().st_mode) == 0o600
        (shared / "s").chmod(0o777)
        with pytest.raises(CollectorError, match="within 1 s"):
            run_as(OTHER, lambda: _connect_to(address, timeout_s=1.0))
        with sk.hdf5.connect(address, WORLD) as client:
            client.append("x", [1])
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [1]


@needs_root
@pytest.mark.parametrize("kind", ["link", "file of another user"])
def test_secret_key_is_not_written_into_a_file_of_another_user(shared, precious, kind):
    if kind == "link":
        run_as(OTHER, lambda: os.symlink(precious, shared / "run.key"))
    else:
        _write_as(OTHER, shared / "run.key", b"", 0o666)
    with open(shared / "run.key", "rb") as opened:
        names = new_key(str(shared / "run.key"), replace=True)
        for name in names:
            found = os.lstat(name)
            assert (found.st_uid, stat.S_IMODE(found.st_mode)) == (0, 0o600)
        assert opened.read() in (b"", PRECIOUS)


# -- redo logs ---------------------------------------------------------------------------------------------


def _plain_file(path):
    with h5py.File(path, "w", libver="latest") as file:
        file["x"] = np.arange(1000)
    return path.read_bytes()


def _collected_file(path):
    store = Store(str(path), synced=False)
    store.close()
    return path.read_bytes()


def _log(path, content, **changes):
    """Make a log that fits the file, and would change and cut it."""
    header = LogHeader(False, True, "0", len(content) // 2, superblock=content[:SUPERBLOCK_BYTES].hex())
    log = RedoLog(f"{path}.redo", LogHeader(**{**header.__dict__, **changes}))
    log.append(len(content) // 2, [(100, b"evil")])
    log.close(remove=False)


@needs_root
@pytest.mark.parametrize("victim", [0, THIRD])
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_a_log_of_another_user_changes_nothing(shared, victim, mode):
    path = shared / "all.h5"
    for make in (_plain_file, _collected_file):
        content = run_as(victim, lambda make=make: make(path))
        run_as(OTHER, lambda content=content: _log(path, content))
        os.chmod(f"{path}.redo", mode)

        def read():
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                with sk.hdf5.open(path) as file:
                    return "x" in file, [str(one.message) for one in told]

        if make is _plain_file:
            is_there, told = run_as(victim, read)
            assert is_there
            assert "read as it is" in told[0]
        else:
            with pytest.raises(UntrustedFileError, match=f"redo log .* belongs to .*{OTHER}"):
                run_as(victim, read)
        for act in (
            lambda: sk.hdf5.open(path, "r+"),
            lambda: Store(str(path), synced=False),
            lambda: recover_file(str(path), None),
        ):
            with pytest.raises(UntrustedFileError, match=f"belongs to .*{OTHER}"):
                run_as(victim, act)
        assert path.read_bytes() == content
        for name in os.listdir(shared):
            os.unlink(shared / name)


@needs_root
def test_log_of_the_owner_is_applied_by_another_user_with_write_permission(shared):
    path = shared / "all.h5"

    def leave():
        Store(str(path), synced=False).abandon().release()
        os.chmod(path, 0o666)

    run_as(OTHER, leave)
    assert os.path.exists(f"{path}.redo")

    def read():
        with sk.hdf5.open(path) as file:
            return list(file)

    assert run_as(THIRD, read) == ["_collector"]
    assert not os.path.exists(f"{path}.redo")


@needs_root
def test_a_collector_does_not_continue_the_file_of_another_user(shared):
    """Its log would be of another owner than the file, and refused by every reader."""
    path = shared / "all.h5"
    run_as(OTHER, lambda: _collected_file(path))
    os.chmod(path, 0o666)
    content = path.read_bytes()
    with pytest.raises(UntrustedFileError, match=f"its file belongs to .*{OTHER}"):
        run_as(THIRD, lambda: Store(str(path), synced=False))
    assert path.read_bytes() == content
    assert os.listdir(shared) == ["all.h5"]


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder", "others write"])
def test_log_that_others_can_write_changes_nothing(tmp_path, kind):
    path, place, real = tmp_path / "all.h5", tmp_path / "all.h5.redo", tmp_path / "real"
    content = _collected_file(path)
    _log(path, content)
    if kind == "hard link":
        os.link(place, real)
    elif kind == "others write":
        place.chmod(0o664)
    else:
        os.rename(place, real)
        {"link": lambda: place.symlink_to(real), "pipe": lambda: os.mkfifo(place)}.get(kind, place.mkdir)()
    for act in (
        lambda: sk.hdf5.open(path),
        lambda: sk.hdf5.snapshot(path).__enter__(),
        lambda: sk.hdf5.open(path, "r+"),
        lambda: Store(str(path), synced=False),
        lambda: recover_file(str(path), None),
    ):
        with pytest.raises(UntrustedFileError):
            act()
        assert path.read_bytes() == content


def test_log_without_the_identity_of_its_file_is_applied_by_the_command_only(tmp_path):
    """The first version with a collector wrote such logs."""
    path = tmp_path / "all.h5"
    content = _collected_file(path)
    header = LogHeader(False, True, "0", len(content))
    log = RedoLog(f"{path}.redo", header)
    log.append(len(content), [])
    log.close(remove=False)
    for act in (
        lambda: sk.hdf5.open(path),
        lambda: sk.hdf5.open(path, "r+"),
        lambda: Store(str(path), synced=False),
    ):
        with pytest.raises(UntrustedFileError, match=f"shardkeep collect {path} --recover"):
            act()
        assert os.path.exists(f"{path}.redo")
        assert path.read_bytes() == content
    Store(str(path), synced=True, takes_old_log=True).close()
    assert not os.path.exists(f"{path}.redo")
    with sk.hdf5.open(path) as file:
        assert list(file) == ["_collector"]


def test_log_of_another_file_is_not_applied(tmp_path):
    path = tmp_path / "results.h5"
    content = _plain_file(path)
    _log(path, content, superblock="")
    with pytest.warns(RuntimeWarning, match="read as it is"), sk.hdf5.open(path) as file:
        assert file["x"][5:8].tolist() == [5, 6, 7]
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "changes",
    [
        {"file_bytes": -1},
        {"file_bytes": 1 << 63},
        {"superblock": "xy"},
        {"superblock": 5},
        {"first_serial": "x"},
        {"strange": 1},
    ],
)
def test_a_log_with_a_strange_header_is_damage(tmp_path, changes):
    path = tmp_path / "all.h5"
    content = _collected_file(path)
    _log(path, content)
    from shardkeep._core import crc32c

    with open(f"{path}.redo", "rb") as file:
        data = file.read()
    size = struct.unpack_from("<8sII", data)[2]
    text = json.dumps({**json.loads(data[16 : 16 + size]), **changes}).encode()
    with open(f"{path}.redo", "wb") as file:
        file.write(struct.pack("<8sII", data[:8], crc32c(text), len(text)) + text + data[16 + size :])
    with pytest.raises((sk.CorruptDataError, sk.FormatError)):
        sk.hdf5.open(path)
    assert path.read_bytes() == content


# -- indexes and spill files -------------------------------------------------------------------------------


def _shard(path, records=3000):
    with sk.tfrecord.Writer(path) as out:
        for number in range(records):
            out.write(b"%06d" % number + bytes(500))


def _crafted(path):
    """Return an index that fits the shard, but counts two records as one where no block is sampled."""
    sk.tfrecord.build_index(path)
    place = f"{path}.skidx"
    starts, fingerprint = binary.read_index_file(place, shard_bytes=os.path.getsize(path))
    os.unlink(place)
    return binary.encode(np.delete(starts, 1000), fingerprint)


@needs_root
@pytest.mark.parametrize("victim", [0, THIRD])
@pytest.mark.parametrize("kind", ["file", "link", "hard link"])
def test_an_index_of_another_user_is_not_used(shared, monkeypatch, victim, kind):
    path = shared / "x.tfrecord"
    monkeypatch.setenv("SHARDKEEP_INDEX_DIR", str(shared / "cache"))
    run_as(victim, lambda: _shard(path))
    evil = run_as(victim, lambda: _crafted(path))
    place = shared / "x.tfrecord.skidx"
    _write_as(OTHER, place if kind == "file" else shared / "evil", evil, 0o666)
    if kind != "file":
        run_as(OTHER, lambda: (os.symlink if kind == "link" else os.link)(shared / "evil", place))

    def read():
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            reader = sk.tfrecord.Reader(path)
            return len(reader), bytes(reader[1500][:6]), [str(one.message) for one in told]

    records, record, told = run_as(victim, read)
    assert (records, record) == (3000, b"001500")
    assert "until then each reader scans the shard" in told[0]
    assert place.read_bytes() == evil
    # The victim's own takes its place when it is asked for.
    if kind == "file":
        run_as(victim, lambda: sk.tfrecord.build_index(path))
        assert (place.stat().st_uid, stat.S_IMODE(place.stat().st_mode)) == (victim, 0o644)


@needs_root
def test_an_index_of_the_owner_of_the_data_is_used(shared, monkeypatch):
    path = shared / "x.tfrecord"
    monkeypatch.setenv("SHARDKEEP_INDEX_DIR", str(shared / "cache"))
    run_as(OTHER, lambda: (_shard(path), sk.tfrecord.build_index(path)))

    def read():
        # A scan would be an error here.
        sk.tfrecord.index._scan_and_save = None
        return len(sk.tfrecord.Reader(path))

    assert run_as(THIRD, read) == 3000


def _spill(folder, identity=b"i" * 16):
    return folder / f"rank-00000-{identity.hex()}.spill"


def _left_spill(folder):
    """Leave a spill file with a row, as a client that found no collector does."""
    client = sk.hdf5.connect(
        folder / "none.h5", WORLD, on_full="spill", spill_dir=folder, timeout_s=0.2, memory_bytes=1 << 20
    )
    client.append("x", [666.0])
    with pytest.raises(CollectorError):
        client.close()


@needs_root
@pytest.mark.parametrize("kind", ["file", "link", "hard link"])
def test_a_spill_file_of_another_user_is_not_sent(shared, tmp_path, kind):
    (tmp_path / "made").mkdir()
    _left_spill(tmp_path / "made")
    (made,) = (tmp_path / "made").glob("*.spill")
    evil = made.read_bytes()
    assert len(evil) > 100
    place = shared / made.name
    _write_as(OTHER, place if kind == "file" else shared / "evil", evil, 0o666)
    if kind != "file":
        run_as(OTHER, lambda: (os.symlink if kind == "link" else os.link)(shared / "evil", place))
    with collecting(tmp_path / "all.h5") as collector:
        with pytest.warns(RuntimeWarning, match="are not sent: the spill file"):
            client = sk.hdf5.connect(collector.address, WORLD, on_full="spill", spill_dir=shared)
        client.append("x", [1.0])
        client.close()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [1.0]
    assert place.read_bytes() == evil


def test_spill_file_of_this_user_is_sent(tmp_path):
    (tmp_path / "spill").mkdir()
    _left_spill(tmp_path / "spill")
    with collecting(tmp_path / "all.h5") as collector:
        sk.hdf5.connect(collector.address, WORLD, on_full="spill", spill_dir=tmp_path / "spill").close()
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [666.0]


def test_copy_of_a_damaged_spill_file_follows_no_link(tmp_path, precious):
    folder = tmp_path / "spill"
    folder.mkdir()
    _left_spill(folder)
    (made,) = folder.glob("*.spill")
    data = bytearray(made.read_bytes())
    data[-1] ^= 1
    made.write_bytes(data)
    os.symlink(precious, f"{made}.0.damaged")
    with collecting(tmp_path / "all.h5") as collector, pytest.warns(RuntimeWarning, match="0.1.damaged"):
        sk.hdf5.connect(collector.address, WORLD, on_full="spill", spill_dir=folder).close()
    with open(f"{made}.0.1.damaged", "rb") as kept:
        assert kept.read()[32:] == data[32:]

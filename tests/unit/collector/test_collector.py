"""What a user calls, with a real collector in another process.

Covers `shardkeep.collector.server.metrics`, `shardkeep.collector.server.process`,
`shardkeep.collector.client.connect`, `shardkeep.collector.client.connection`,
`shardkeep.collector.client.message_handler` and `shardkeep.collector.client.sender`.
"""

import json
import os
import signal
import threading
import time
import urllib.request

import h5py
import numpy as np
import pytest
from click.testing import CliRunner

from shardkeep.cli.app import app
from shardkeep.collector.protocol.keys import new_key, read_client_key, read_server_key
from shardkeep.collector.protocol.settings import Settings
from shardkeep.collector.server.events import Events
from shardkeep.collector.server.metrics import Metrics
from shardkeep.collector.server.process import run
from shardkeep.errors import CollectorError, ExistsError, FormatError, NotFoundError, PlanError, SchemaError
from shardkeep.hdf5 import Collector, WorkerFile, connect, merge, snapshot, verify
from shardkeep.jobs.info import info
from shardkeep.world import World
from tests.descriptors import open_descriptors
from tests.procs.collector_run import collecting, start_collector, stop
from tests.waiting import PATIENCE_S, eventually

WORLD = World(rank=0, size=1)


def test_everything_that_rows_may_be(tmp_path):
    with Collector(tmp_path / "all.h5") as collector, collector.connect(WORLD) as client:
        client.append("scalar", 0.5)
        client.append("scalar", [1, 2])
        client.append("int", 7)
        client.append("g/rows", np.arange(12, dtype=">i2").reshape(2, 3, 2))
        client.append("word", "one")
        client.append("word", ["two", "drei ☃"])
        client.append("flag", [True, False])
        client.append("empty", np.zeros((3, 0), "f4"))
        client.append("none", np.zeros((0, 4), "f4"))
        client.declare(
            "packed", "f8", (100,), chunk_rows=7, compression="gzip", attributes={"unit": "m", "n": [1, 2]}
        )
        client.append("packed", np.arange(2000.0).reshape(20, 100))
        kind = np.dtype([("name", h5py.string_dtype()), ("x", "f4")])
        client.append("both", np.array([("a", 1.5)], kind))
        client.flush()
        for name, bad in (
            ("scalar", ["x"]),
            ("scalar", [[1.0]]),
            ("int", 1.5),
            ("int", 1 << 70),
            ("a//b", 1),
            ("g", 1),
        ):
            with pytest.raises(SchemaError):
                client.append(name, bad)
        with pytest.raises(SchemaError, match="used by Shardkeep"):
            client.append("_collector/x", 1)
        with pytest.raises(SchemaError, match="declared with"):
            client.declare("int", "f4")
    assert collector.report["rows"]["packed"] == 20
    assert sorted(os.listdir(tmp_path)) == ["all.h5"]
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["scalar"][:].tolist() == [0.5, 1, 2]
        assert file["int"][:].tolist() == [7]
        assert file["g/rows"].dtype == np.dtype(">i2")
        assert (file["g/rows"][:] == np.arange(12).reshape(2, 3, 2)).all()
        assert file["word"].asstr()[:].tolist() == ["one", "two", "drei ☃"]
        assert file["flag"].dtype == bool
        assert (file["empty"].shape, file["none"].shape) == ((3, 0), (0, 4))
        assert (file["packed"][:] == np.arange(2000.0).reshape(20, 100)).all()
        assert (file["packed"].chunks, file["packed"].compression) == ((7, 100), "gzip")
        assert (file["packed"].attrs["unit"], file["packed"].attrs["n"].tolist()) == ("m", [1, 2])
        assert file["both"][0].tolist() == (b"a", 1.5)


def test_rows_by_number_are_written_once(tmp_path):
    with (
        collecting(tmp_path / "all.h5") as collector,
        collector.connect(World(rank=0, size=2)) as one,
        collector.connect(World(rank=1, size=2)) as two,
    ):
        for client in (one, two):
            client.declare("p", "i8", (2,), rows=1000)
        one.append("p", np.full((500, 2), 1), key=np.arange(0, 1000, 2)[::-1])
        two.append("p", np.full((499, 2), 2), key=np.arange(1, 999, 2))
        one.flush()
        two.flush()
        two.append("p", [[9, 9]], key=[4])
        with pytest.raises(CollectorError, match=r"row 4 of 'p' was written by rank 0 .* by rank 1"):
            two.flush()
        two.append("p", [[9, 9], [9, 9]], key=[999, 1000])
        with pytest.raises(CollectorError, match="rows 0 to 999"):
            two.flush()
        with pytest.raises(SchemaError, match="key="):
            one.append("p", [[1, 1]])
        with pytest.raises(SchemaError, match="ints as key="):
            one.append("p", [[1, 1]], key=[0.5])
        with pytest.raises(SchemaError, match="rows=N"):
            one.append("q", [[1, 1]], key=[0])
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["p"][:, 0].tolist() == [1, 2] * 499 + [1, 0]
        assert file["_collector/writers/p"][:].tolist() == [1, 2] * 499 + [1, 0]


def test_it_may_start_later_and_again(tmp_path):
    started = []
    thread = threading.Thread(
        target=lambda: (time.sleep(0.5), started.append(start_collector(tmp_path / "all.h5")))
    )
    thread.start()
    client = connect(tmp_path, WORLD, timeout_s=PATIENCE_S)
    thread.join()
    client.append("x", np.arange(100_000))
    client.flush()
    with snapshot(tmp_path / "all.h5") as file:
        assert "_collector" in file
    stop(started[0])
    with pytest.raises(CollectorError, match="has stopped"):
        client.append("x", [1])
    client.close()
    with collecting(tmp_path / "all.h5") as collector, collector.connect(WORLD) as client:
        client.append("x", [-1])
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [*range(100_000), -1]


def test_a_client_that_is_closed_keeps_no_descriptor(tmp_path):
    with collecting(tmp_path / "all.h5") as collector:
        collector.connect(WORLD).close()  # the context of ZeroMQ stays
        before = len(open_descriptors())
        for _ in range(5):
            with collector.connect(WORLD) as client:
                client.append("x", [1.0])
        # ZeroMQ closes its sockets in another thread.
        eventually(lambda: len(open_descriptors()) <= before)


def test_nobody_there_says_what_was_waited_for(tmp_path):
    with pytest.raises(CollectorError, match=r"\*\.collector\.json.*within 0\.2 s"):
        connect(tmp_path, WORLD, timeout_s=0.2)
    with pytest.raises(CollectorError, match=r"ipc:///nowhere/x.*within 0\.2 s"):
        connect("ipc:///nowhere/x", WORLD, timeout_s=0.2)
    with pytest.raises(NotFoundError):
        snapshot(tmp_path / "all.h5").__enter__()


def test_readers_see_whole_growing_datasets(tmp_path):
    path = tmp_path / "all.h5"
    with collecting(path, durability="flush") as collector, collector.connect(WORLD) as client:
        seen = 0
        deadline = time.monotonic() + PATIENCE_S
        row = 0
        while seen < 3:
            assert time.monotonic() < deadline
            for _ in range(100):
                client.append("x", np.full((10, 16), row))
                row += 1
            client.flush()
            with snapshot(path) as file:
                if "x" in file and len(file["x"]) > seen:
                    rows = file["x"][:]
                    assert (rows == np.repeat(np.arange(len(rows) // 10), 10)[:, None]).all()
                    seen += 1
            with h5py.File(path, "r") as plain:  # any reader may open it, too
                assert "_collector" in plain
            time.sleep(0.2)


def test_a_collector_file_can_be_merged(tmp_path):
    for name in ("a", "b"):
        with collecting(tmp_path / f"{name}.h5") as collector, collector.connect(WORLD) as client:
            client.append("x", [1.0, 2.0])
            client.declare("placed", "f4", (), rows=2)
            client.append("placed", [1.0], key=[1])
    report = merge([tmp_path / "a.h5", tmp_path / "b.h5"], tmp_path / "all.h5")
    assert report.rows == {"x": 4, "placed": 4}
    with h5py.File(tmp_path / "all.h5") as file:
        assert [name for name in file if not name.startswith("_")] == ["placed", "x"]
        assert "_collector" not in file


def test_its_own_group_is_no_data(tmp_path):
    path = tmp_path / "all.h5"
    with collecting(path) as collector, collector.connect(WORLD) as client:
        client.append("x", [1.0, 2.0])
    found = info(path)
    assert (found.collected, [one.name for one in found.datasets]) == (True, ["x"])
    verdict = verify(path)
    assert (verdict.kind, verdict.rows, verdict.ok) == ("collected", 2, True)
    with h5py.File(path, "r+") as file:
        file.create_dataset("_collector/gone", (1,), "u1", external=[("nowhere", 0, 1)])
    assert not verify(path).ok
    with WorkerFile(tmp_path / "run", WORLD) as worker, pytest.raises(SchemaError, match="used by Shardkeep"):
        worker.append("_collector/x", [1])


def test_on_full(tmp_path):
    with pytest.raises(PlanError, match="on_full"):
        connect(tmp_path, WORLD, on_full="drop")
    with pytest.raises(PlanError, match="spill_dir"):
        connect(tmp_path, WORLD, on_full="spill")
    collector = start_collector(tmp_path / "all.h5")
    client = connect(tmp_path, WORLD, on_full="raise", timeout_s=PATIENCE_S, memory_bytes=1 << 20)
    client.append("x", np.zeros((1, 1 << 14)))
    client.flush()
    os.kill(collector.pid, signal.SIGSTOP)
    client.timeout_s = 1
    with pytest.raises(CollectorError, match="did not take more rows within 1 s"):
        for _ in range(100):
            client.append("x", np.zeros((1, 1 << 14)))
    os.kill(collector.pid, signal.SIGCONT)
    client.timeout_s = PATIENCE_S
    client.flush()
    client.close()
    stop(collector)


def test_keys(tmp_path):
    server, client = new_key(str(tmp_path / "key"))
    assert [oct(os.stat(one).st_mode & 0o777) for one in (server, client)] == ["0o600", "0o600"]
    assert read_client_key(client).public in read_server_key(server).clients
    with pytest.raises(ExistsError):
        new_key(server)
    with pytest.raises(FormatError, match="not the key file"):
        read_server_key(client)
    with pytest.raises(NotFoundError):
        read_client_key(str(tmp_path / "none"))
    os.chmod(client, 0o644)
    with pytest.raises(CollectorError, match="chmod 600"):
        read_client_key(client)


@pytest.mark.parametrize(
    "address", ["ipc://@name", "ipc://", "ipc:///" + "x" * 200, "http://a:1", "tcp://a", "inproc://x"]
)
def test_addresses_that_are_none(tmp_path, address):
    with pytest.raises(PlanError):
        Collector(tmp_path / "all.h5", address)


def test_the_command(tmp_path):
    runner = CliRunner()
    key = str(tmp_path / "key")
    done = runner.invoke(app, ["collect", "--new-key", key])
    assert done.exit_code == 0
    assert f"{key}.client" in done.output
    assert runner.invoke(app, ["collect", "--memory", "much", "x.h5"]).exit_code == 2
    assert runner.invoke(app, ["collect"]).exit_code == 2
    collector = start_collector(tmp_path / "all.h5")
    with connect(tmp_path, WORLD) as client:
        client.append("x", [1, 2, 3])
        client.flush()
        collector.kill()
        collector.join()
        done = runner.invoke(app, ["collect", str(tmp_path / "all.h5"), "--recover", "--json"])
        assert done.exit_code == 0
        events = [json.loads(line) for line in done.output.splitlines()]
        assert [one["event"] for one in events] == ["recovered", "finished"]
        assert events[-1]["rows"] == {"x": 3}
        again = start_collector(tmp_path / "all.h5")
    stop(again)


def test_metrics(tmp_path):
    with open(tmp_path / "log", "w") as log:
        tell = Metrics(0)
        events = Events(log, "json", every_s=0.0, metrics=tell)
        settings = Settings(str(tmp_path / "all.h5"), "", until_done=True)
        worker = threading.Thread(target=_three_rows, args=(tmp_path,))
        worker.start()
        run(settings, events)
        worker.join()
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert {"opened", "listening", "joined", "left", "stopping", "finished"} <= {
        one["event"] for one in lines
    }
    with urllib.request.urlopen(f"http://127.0.0.1:{tell.port}/metrics") as page:
        assert b"shardkeep_collector_rows_total 3.0" in page.read()
    tell.close()


def _three_rows(folder):
    with connect(folder, WORLD) as client:
        client.append("x", [1, 2, 3])
        client.flush()


def test_the_file_of_a_few_scalars_is_small(tmp_path):
    path = tmp_path / "all.h5"
    for _ in range(2):
        with Collector(path) as collector, collector.connect(WORLD) as client:
            for step in range(5):
                client.append("loss", step / 2)
            client.append("array", np.zeros(2))
            client.flush()
        with h5py.File(path) as file:
            assert (file["loss"].chunks, file["array"].chunks) == ((4096,), (65536,))
            assert file["_collector/clients"].chunks == (64,)
    with h5py.File(path) as file:
        assert file["loss"][:].tolist() == [0, 0.5, 1, 1.5, 2] * 2
    size = path.stat().st_size - 65536 * 8
    assert size < 50_000, size

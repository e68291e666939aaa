import errno
import json
import os
import pickle
import shutil
import threading

import h5py
import numpy as np
import pytest

from shardkeep.errors import (
    DurabilityError,
    LockError,
    LockTimeoutError,
    NotFoundError,
    PlanError,
    SchemaError,
)
from shardkeep.hdf5 import WorkerFile, merge, receipts
from shardkeep.hdf5.segments.run_folder import list_segments
from shardkeep.hdf5.segments.segment import Segment
from shardkeep.hdf5.storage.row_writer import RowWriter
from shardkeep.world import World
from tests.descriptors import open_descriptors
from tests.unit.hdf5.dtypes import DTYPES, check_rows, values_of
from tests.unit.hdf5.worker.float_rows import ONE_CHUNK, WORLD, float_rows, merged
from tests.waiting import PATIENCE_S


def test_a_file_in_place_of_the_folder_of_the_run_is_refused_with_the_cause(run):
    run.write_text("")
    with pytest.raises(DurabilityError, match="a part of that path is a file: choose another folder"):
        WorkerFile(run, WORLD)


def test_rows_come_back_in_order(run):
    pieces = [1, 5, ONE_CHUNK - 6, 1, ONE_CHUNK, 3 * ONE_CHUNK + 7, 1, 0, 2 * ONE_CHUNK]
    with WorkerFile(run, WORLD) as out:
        row = 0
        for step, count in enumerate(pieces):
            out.append("x", float_rows(row, row + count))
            row += count
            if step % 3 == 2:
                out.commit(step=step)
    assert (merged(run) == float_rows(0, row)).all()


def test_a_segment_is_an_ordinary_file_with_its_commit(run):
    with WorkerFile(run, World(rank=3, size=8)) as out:
        out.append("a/b", float_rows(0, 1500))
        out.append("loss", [0.5, 0.25])
        out.commit(step=7, receipt={"id": "abc", "n": 1})
        out.append("loss", [0.125])
        out.commit(step=9)
    names = sorted(os.listdir(run / "rank-00003"))
    assert names == ["00000000-step-7.h5", "00000001-step-9.h5"]
    with h5py.File(run / "rank-00003" / names[0]) as file:
        assert (file["a/b"][:] == float_rows(0, 1500)).all()
        assert file["a/b"].chunks == (ONE_CHUNK, 128)
        assert file["loss"].chunks is None  # a few rows are no reason for a chunk
        record = json.loads(file["_commit"][()])
    assert record["receipt"] == {"id": "abc", "n": 1}
    assert (record["rank"], record["world_size"], record["sequence"], record["step"]) == (3, 8, 0, 7)
    assert record["datasets"]["a/b"]["rows"] == 1500
    with h5py.File(run / "rank-00003" / names[1]) as file:
        assert file["a/b"].shape == (0, 128)
        record = json.loads(file["_commit"][()])
    assert record["datasets"]["loss"] == {
        "first_row": 2,
        "rows": 1,
        "crc32c": record["datasets"]["loss"]["crc32c"],
        "chunks_crc32c": None,
    }
    assert os.path.getsize(run / "rank-00003" / names[1]) < 20_000


def test_a_last_chunk_has_no_old_rows_after_the_last_one(run):
    with WorkerFile(run, WORLD) as out:
        out.append("x", float_rows(1, 6))
        out.append("x", float_rows(6, 2 * ONE_CHUNK))
        out.append("t", ["a"] * 5000)
        out.commit(step=1)
    with h5py.File(run / "rank-00000" / "00000000-step-1.h5") as file:
        _, data = file["x"].id.read_direct_chunk((ONE_CHUNK, 0))
    assert data == float_rows(ONE_CHUNK + 1, 2 * ONE_CHUNK).tobytes() + bytes(512)


@pytest.mark.parametrize("shape", [(), (2,), (0,)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_kept_in_chunks_and_in_part_of_one(run, dtype, shape):
    dtype = np.dtype(dtype)
    many = 600_000 // max(1, dtype.itemsize)  # a little more than one chunk
    for count in (3, many):
        rows = values_of(dtype, (count, *shape))
        out = WorkerFile(run / str(count), WORLD, durable=False)
        out.append("x", rows)
        out.commit(step=1)
        out.close()
        for mode in ("copy", "virtual"):
            merge(run / str(count), run / f"{count}-{mode}.h5", mode=mode)
            check_rows(run / f"{count}-{mode}.h5", "x", rows)


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_is_kept_row_by_row_and_compressed(run, dtype, compression):
    """Also across two commits and a restart, and with the last chunk not full."""
    dtype = np.dtype(dtype)
    rows = values_of(dtype, (70, 3))
    for start, stop in ((0, 45), (45, 70)):
        with WorkerFile(run, WORLD, durable=False) as out:
            out.declare("a/x", dtype, (3,), compression=compression, chunk_rows=20)
            for i in range(start, stop, 1 if start else 7):
                out.append("a/x", rows[i : min(stop, i + (1 if start else 7))])
            out.commit(step=stop)
    for mode in ("copy", "virtual"):
        merge(run, run / f"{mode}.h5", mode=mode)
        check_rows(run / f"{mode}.h5", "a/x", rows)


def test_text_is_kept_in_chunks_and_in_part_of_one(run):
    words = [f"wörd {i}" * (i % 5) for i in range(9000)]
    with WorkerFile(run, WORLD) as out:
        out.append("x", words[:5000])
        out.append("x", np.array(words[5000:8999]))
        out.append("x", words[8999:])
        out.commit(step=1)
        out.append("x", ["", "last"])
        out.commit(step=2)
    merge(run, run / "all.h5")
    with h5py.File(run / "all.h5") as file:
        assert file["x"].asstr()[:].tolist() == [*words, "", "last"]


def test_the_rows_are_copied_at_once(run):
    rows = float_rows(0, 1)
    with WorkerFile(run, WORLD) as out:
        for _ in range(3):
            out.append("x", rows)
            rows += 1
        out.commit(step=1)
    assert merged(run)[:, 0].tolist() == [0, 1, 2]


@pytest.mark.parametrize("make", [np.asfortranarray, lambda a: np.repeat(a, 2, axis=0)[::2]])
def test_arrays_that_are_not_contiguous_are_kept(run, make):
    rows = np.random.default_rng(0).random((3000, 128))
    with WorkerFile(run, WORLD) as out:
        out.append("x", make(rows))
        out.commit(step=1)
    assert (merged(run) == rows).all()


def test_rows_that_do_not_fit_change_nothing(run):
    with WorkerFile(run, WORLD) as out:
        out.append("x", float_rows(0, 2))
        for wrong in (float_rows(0, 1).astype("f8"), np.zeros((1, 127), "f4"), np.zeros((128,), "f4"), 1.0):
            with pytest.raises(SchemaError):
                out.append("x", wrong)
        out.append("one", np.zeros(0))
        for wrong in (np.zeros((1, 1)), "a", ["a"]):
            with pytest.raises(SchemaError):
                out.append("one", wrong)
        with pytest.raises(SchemaError):
            out.append("x/y", [1])
        with pytest.raises(SchemaError):
            out.append("new", [object()])
        out.append("x", float_rows(2, 3))
        out.commit(step=1)
        assert out.committed_rows == {"x": 3, "one": 0}
    assert (merged(run) == float_rows(0, 3)).all()


def test_a_dataset_without_rows_is_kept(run):
    with WorkerFile(run, WORLD) as out:
        out.append("none", np.empty((0, 4), "i2"))
        out.commit(step=1)
    assert merged(run, "none").shape == (0, 4)
    with WorkerFile(run, WORLD) as out, pytest.raises(SchemaError):
        out.append("none", np.zeros((1, 5), "i2"))


def test_an_empty_list_determines_no_type(run):
    for rank, names in enumerate(([], ["a", "b"], [])):
        with WorkerFile(run, World(rank=rank, size=3)) as out:
            out.append("names", names)
            out.append("names", ["c"] if rank == 2 else ())
            out.commit(step=0)
    merge(run, run / "all.h5")
    with h5py.File(run / "all.h5") as file:
        assert file["names"].asstr()[:].tolist() == ["a", "b", "c"]


# -- commits --------------------------------------------------------------------------------------


def test_steps_must_increase(run):
    with WorkerFile(run, WORLD) as out:
        assert out.committed_step is None
        for wrong in (-1, 1.5, "1", None):
            with pytest.raises(PlanError):
                out.commit(step=wrong)
        out.commit(step=0)
        out.commit(step=np.int64(10))
        assert out.committed_step == 10
        for wrong in (10, 3):
            with pytest.raises(PlanError, match="rollback"):
                out.commit(step=wrong)
    with WorkerFile(run, WORLD) as out:
        assert out.committed_step == 10


STATE = {"version": 1, "order": 1, "epoch": 0, "position": 64}  # as of `loader.state_dict()`


@pytest.mark.parametrize("receipt", [[1], "x", {"a": object()}, {"a": float("nan")}, {1: {2}}, STATE, {}])
def test_a_receipt_must_be_json_of_a_loader(run, receipt):
    with WorkerFile(run, WORLD) as out:
        out.append("x", [1])
        with pytest.raises(PlanError, match="receipt"):
            out.commit(step=1, receipt=receipt)
        with pytest.raises(PlanError, match="receipt"):
            out.mark(1, receipt=receipt)
        out.commit(step=1)
        assert out.committed_rows == {"x": 1}


def test_a_large_receipt_fits(run):
    receipt = {"id": "a", "shards": [f"train-{i:05d}" for i in range(20_000)]}
    with WorkerFile(run, WORLD) as out:
        out.commit(step=1, receipt=receipt)
    assert receipts(run) == [receipt]


def test_uncommitted_rows_are_dropped_with_a_warning(run):
    out = WorkerFile(run, WORLD)
    out.append("x", float_rows(0, 5))
    out.commit(step=1)
    out.append("x", float_rows(5, 5000))
    assert out.uncommitted_rows == {"x": 4995}
    with pytest.warns(RuntimeWarning, match="4995 of 'x'"):
        out.close()
    out.close()
    assert (merged(run) == float_rows(0, 5)).all()
    assert os.listdir(run / "rank-00000") == ["00000000-step-1.h5"]


def test_an_exception_drops_uncommitted_rows_without_a_warning(run):
    with pytest.raises(ZeroDivisionError), WorkerFile(run, WORLD) as out:
        out.append("x", float_rows(0, 5))
        out.commit(step=1)
        out.append("x", float_rows(5, 5000))
        raise ZeroDivisionError
    assert (merged(run) == float_rows(0, 5)).all()


def test_leftovers_are_removed_on_opening(run):
    with WorkerFile(run, WORLD) as out:
        out.commit(step=1)
    name = ".segment.h5.sk-0badcafe-0-0-1-0-01234567.sktmp"
    (run / "rank-00000" / name).write_bytes(b"half a segment")
    with WorkerFile(run, WORLD) as out:
        assert out.committed_step == 1
        assert name not in os.listdir(run / "rank-00000")


def test_a_closed_or_pickled_file_is_refused(run):
    out = WorkerFile(run, WORLD)
    with pytest.raises(LockError, match="pickled"):
        pickle.dumps(out)
    out.close()
    with pytest.raises(LockError, match="closed"):
        out.append("x", [1])
    with pytest.raises(LockError, match="closed"):
        out.commit(step=1)
    with pytest.raises(LockError, match="closed"):
        out.rollback(step=1)


def test_a_second_writer_of_the_rank_is_refused(run):
    with WorkerFile(run, WORLD) as out:
        with pytest.raises(LockTimeoutError) as caught:
            WorkerFile(run, WORLD)
        assert caught.value.holder["pid"] == os.getpid()
        with WorkerFile(run, World(rank=1, size=2)):
            out.commit(step=1)
    with WorkerFile(run, WORLD) as out:
        assert out.committed_step == 1


def test_a_deleted_object_releases_the_rank(run):
    out = WorkerFile(run, WORLD)
    out.append("x", float_rows(0, 3000))
    with pytest.warns(RuntimeWarning, match="never committed are dropped: 3000 of 'x'"):
        del out
    WorkerFile(run, WORLD).close()
    assert os.listdir(run / "rank-00000") == []


def test_the_world_is_detected_by_default(run, monkeypatch):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with WorkerFile(run) as out:
        assert out.rank == 2


def test_threads_may_share_a_worker_file(run, monkeypatch):
    """While one thread writes a chunk, another one's row waits and comes after it."""
    with WorkerFile(run, WORLD) as out:
        out.append("x", np.array([0]))
        writing, go_on = threading.Event(), threading.Event()
        original = RowWriter._write

        def slow(writer, start, rows):
            writing.set()
            assert go_on.wait(PATIENCE_S)
            original(writer, start, rows)

        monkeypatch.setattr(RowWriter, "_write", slow)
        many = threading.Thread(target=out.append, args=("x", np.arange(1, 100_000)))
        many.start()
        assert writing.wait(PATIENCE_S)
        one = threading.Thread(target=out.append, args=("x", np.array([100_000, 100_001])))
        one.start()
        one.join(0.2)
        assert one.is_alive()
        go_on.set()
        many.join(PATIENCE_S)
        one.join(PATIENCE_S)
        out.commit(step=1)
    assert merged(run).tolist() == list(range(100_002))


def test_no_descriptor_stays_open(run):
    WorkerFile(run, WORLD).close()
    before = open_descriptors()
    with WorkerFile(run, WORLD) as out:
        for step in range(3):
            out.append("x", float_rows(0, 3000))
            out.commit(step=step)
        out.append("x", float_rows(0, 3000))
        out.rollback(step=1)
    assert not open_descriptors() - before


# -- failures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [10, 3000])
@pytest.mark.parametrize(("function", "number"), [("fsync", 1), ("fsync", 2), ("link", 1), ("pwrite", 1)])
def test_a_failed_commit_did_not_happen(run, monkeypatch, function, number, rows):
    out = WorkerFile(run, WORLD)
    out.append("x", float_rows(0, 5))
    out.commit(step=1)
    calls = []
    original = getattr(os, function)

    def failing(*arguments, **options):
        calls.append(1)
        if len(calls) == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return original(*arguments, **options)

    monkeypatch.setattr(os, function, failing)
    with pytest.raises(DurabilityError) as caught:
        out.append("x", float_rows(5, 5 + rows))
        out.commit(step=2)
    assert len(calls) >= number
    assert caught.value.errno == errno.EIO
    monkeypatch.undo()
    assert sorted(os.listdir(run / "rank-00000")) == ["00000000-step-1.h5", "writer.lock"]
    with pytest.raises(DurabilityError, match="rollback"):
        out.append("x", float_rows(0, 1))
    with pytest.raises(DurabilityError, match="rollback"):
        out.commit(step=3)
    out.rollback(step=1)
    out.append("x", float_rows(5, 7))
    out.commit(step=2)
    out.close()
    assert (merged(run) == float_rows(0, 7)).all()


def test_an_interrupt_in_mid_append_is_not_half_a_row(run, monkeypatch):
    with WorkerFile(run, WORLD) as out:
        out.append("x", float_rows(0, 5))
        out.commit(step=1)

        def interrupt(*_):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(RowWriter, "_write", interrupt)
            with pytest.raises(KeyboardInterrupt):
                out.append("x", float_rows(5, 5000))
        with pytest.raises(DurabilityError, match="KeyboardInterrupt"):
            out.commit(step=2)
        out.rollback(step=1)
    assert (merged(run) == float_rows(0, 5)).all()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(DurabilityError):
        WorkerFile(tmp_path / "file" / "run", WORLD)


def test_files_are_synced_only_when_durable(run, monkeypatch):
    calls = []
    original = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: calls.append(original(fd)))
    for durable in (False, True):
        with WorkerFile(run / str(durable), WORLD, durable=durable) as out:
            out.append("x", [1])
            calls.clear()
            out.commit(step=1)
            assert len(calls) == (2 if durable else 0)


@pytest.mark.parametrize("number", [1, 2])
def test_an_interrupt_just_after_a_commit_leaves_one_segment(run, monkeypatch, number):
    """The segment has its name, the object has no record of it, and must read the folder first."""
    out = WorkerFile(run, WORLD)
    out.append("x", float_rows(0, 2))
    out.append("y", [1, 2])
    original = RowWriter.reset
    calls = []

    def interrupted(writer):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        original(writer)

    monkeypatch.setattr(RowWriter, "reset", interrupted)
    with pytest.raises(KeyboardInterrupt):
        out.commit(step=1)
    monkeypatch.setattr(RowWriter, "reset", original)
    with pytest.raises(DurabilityError, match="rollback"):
        out.append("x", float_rows(2, 3))
    with pytest.raises(DurabilityError, match="rollback"):
        out.commit(step=2)
    out.rollback(step=1)
    assert (out.committed_step, out.committed_rows) == (1, {"x": 2, "y": 2})
    out.append("x", float_rows(2, 3))
    out.commit(step=2)
    out.close()
    assert [one.sequence for one in list_segments(run / "rank-00000")] == [0, 1]
    assert (merged(run) == float_rows(0, 3)).all()
    WorkerFile(run, WORLD).close()


def test_close_waits_for_the_commit_of_another_thread(run, monkeypatch):
    out = WorkerFile(run, WORLD)
    out.append("x", float_rows(0, 2))
    inside, go_on, errors = threading.Event(), threading.Event(), []
    original = Segment.seal

    def slow(*arguments):
        inside.set()
        assert go_on.wait(PATIENCE_S)
        return original(*arguments)

    def commit():
        try:
            out.commit(step=1)
        except BaseException as error:
            errors.append(error)

    monkeypatch.setattr(Segment, "seal", slow)
    threads = [threading.Thread(target=commit), threading.Thread(target=out.close)]
    threads[0].start()
    assert inside.wait(PATIENCE_S)
    threads[1].start()
    threads[1].join(0.1)
    assert threads[1].is_alive()
    go_on.set()
    for one in threads:
        one.join(PATIENCE_S)
    assert errors == []
    assert (merged(run) == float_rows(0, 2)).all()
    with pytest.raises(LockError, match="closed"):
        out.commit(step=2)


def test_a_change_of_the_current_folder_has_no_effect(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "b" / "run" / "rank-00000").mkdir(parents=True)  # nothing may come in there
    monkeypatch.chdir(tmp_path / "a")
    with WorkerFile("run", WORLD) as out:
        for step in range(3):
            out.append("x", [step])
            out.commit(step=step)
            monkeypatch.chdir(tmp_path / "b")
        out.rollback(step=1)
        assert out.committed_rows == {"x": 2}
    assert sorted(os.listdir(tmp_path / "a/run/rank-00000")) == ["00000000-step-0.h5", "00000001-step-1.h5"]
    assert os.listdir(tmp_path / "b/run/rank-00000") == []


def test_a_removed_folder_of_the_rank_is_an_error(run):
    with WorkerFile(run, WORLD) as out:
        out.append("x", [1])
        out.commit(step=0)
        shutil.rmtree(run)
        with pytest.raises(NotFoundError, match="rank-00000"):
            out.append("x", [1])
            out.commit(step=1)
        with pytest.raises(NotFoundError, match="is gone: bring it back"):
            out.rollback(step=0)

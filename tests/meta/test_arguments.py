"""Wrong arguments of public functions, each an error of Shardkeep with the value and what to pass."""

from __future__ import annotations

import io
import re
from collections import UserDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep import hdf5, jobs, plan, tfrecord
from shardkeep.errors import FormatError, PlanError, SchemaError, WorldError

Call = Callable[[Path, Any], Any]
FEATURES = {"x": sk.FixedLen()}
RANK = sk.World()


def write(method: str, **options: Any) -> Call:
    """Return a call of a method of `Writer`."""

    def call(folder: Path, bad: Any) -> None:
        with tfrecord.Writer(folder / "new") as writer:
            getattr(writer, method)(bad, **options)

    return call


def write_to_set(at: Path, record: Any, **options: Any) -> None:
    with tfrecord.ShardWriter(at / "new-{shard}", shards=2) as writer:
        writer.write(record, **options)


def sharded(at: Path, shards: Any) -> None:
    tfrecord.ShardWriter(at / "new-{shard}", shards=shards)


def split(at: Path, shard_bytes: Any) -> None:
    jobs.split(at / "a", at / "new-{shard}", shard_bytes=shard_bytes)


def each(*calls: Call) -> Call:
    """Return a call of all of these, which must raise errors of one type and text."""

    def call(at: Path, bad: Any) -> None:
        errors = []
        for one in calls:
            with pytest.raises(sk.ShardkeepError) as caught:
                one(at, bad)
            errors.append(caught.value)
        ((_, _),) = {(type(error), str(error)) for error in errors}
        raise errors[0]

    return call


class H5Names(UserDict[str, int]):
    """A mapping that is not a dict, as an `h5py.File` is."""


NO_DICT = "features must be a dict of names to FixedLen, VarLen or Image, not"
NO_WORLD = r"world must be a World, such as World\(rank=0, size=2\), not"
# A call with a folder, which holds the file "a", and a wrong value; the values; the error.
WRONG: dict[str, tuple[Call, list[Any], type[Exception], str]] = {
    "Loader world": (
        lambda at, bad: sk.Loader(at / "a", FEATURES, 2, bad),
        [0, (0, 1)],
        WorldError,
        NO_WORLD,
    ),
    "WorkerFile world": (lambda at, bad: hdf5.WorkerFile(at / "run", bad), [0, "0"], WorldError, NO_WORLD),
    "connect world": (lambda at, bad: hdf5.connect(at / "run", bad), [0], WorldError, NO_WORLD),
    "one path": (
        each(
            lambda at, bad: tfrecord.Reader(bad),
            lambda at, bad: tfrecord.Writer(bad),
            lambda at, bad: tfrecord.follow(bad),
            lambda at, bad: hdf5.open(bad),
            lambda at, bad: hdf5.verify(bad),
            lambda at, bad: hdf5.Collector(bad),
            lambda at, bad: hdf5.WorkerFile(bad, RANK),
            lambda at, bad: hdf5.rollback(bad, step=1),
            lambda at, bad: jobs.info(bad),
        ),
        [None, 3],
        PlanError,
        "a path must be a str or os.PathLike, not",
    ),
    "Loader features": (
        lambda at, bad: sk.Loader(at / "a", bad, 2, RANK),
        [["x"], "x"],
        SchemaError,
        NO_DICT,
    ),
    "columns": (lambda at, bad: tfrecord.read_columns(at / "a", bad), [["x"], None], SchemaError, NO_DICT),
    "shape": (lambda at, bad: sk.FixedLen(bad), [None, 1.5, -1, 2**70, ("a",)], SchemaError, "shape=.* pass"),
    "size": (lambda at, bad: sk.Image(size=bad), [3, 1.5, (2**70, 1), "ab"], SchemaError, "size=.* pass"),
    "write": (write("write"), [3, None, 1.5, ["a"]], SchemaError, "a record must be bytes-like, not"),
    "write text": (write("write"), ["abc"], SchemaError, r"not 'abc'; encode it, as in text\.encode\(\)"),
    "set write": (write_to_set, ["abc", 3, None], SchemaError, "a record must be bytes-like, not"),
    "set shard": (
        lambda at, bad: write_to_set(at, b"", shard=bad),
        ["0", 2, -1, 1.0, True],
        PlanError,
        "shard must be .*from 0 to 1, not",
    ),
    "set key": (lambda at, bad: write_to_set(at, b"", key=bad), [3, ["a"]], PlanError, "key must be a str"),
    "shards": (sharded, ["2", 0, -1, 1.5, 2**70], PlanError, "shards must be .*from 1 to 1048576, not"),
    "shard_bytes": (split, ["2", 0, 1.5], PlanError, "shard_bytes must be .*at least 1, not"),
    "Example": (
        lambda at, bad: tfrecord.encode_example(bad),
        [["a"], None, "abc"],
        SchemaError,
        "features must be a dict of names to values, not",
    ),
    "Example value": (
        lambda at, bad: tfrecord.encode_example({"x": bad}),
        [2**70, [1, 2**70], -(2**63) - 1, 2**63],
        SchemaError,
        "feature 'x': .*cannot be stored; an Example holds int",
    ),
    "feature_lists": (
        lambda at, bad: tfrecord.encode_sequence_example({}, bad),
        [["a"], None, 3],
        SchemaError,
        "feature_lists must be a dict of names to",
    ),
    "write_examples": (write("write_examples"), [["a"], 3], SchemaError, "columns must be a dict"),
    "decode": (
        lambda at, bad: tfrecord.decode_example(bad),
        ["abc", 3, None],
        SchemaError,
        "bytes-like, not",
    ),
    "compression": (
        lambda at, bad: tfrecord.Writer(at / "new", compression=bad),
        [3, ["gzip"], "bzip2", 0],
        PlanError,
        'compression=.* is not known: use None, "gzip"',
    ),
    "threads": (
        lambda at, bad: tfrecord.build_index(at / "a", threads=bad),
        ["2", 0, -1, 1.5, 2**70],
        PlanError,
        "threads must be .*from 1 to 1024, not",
    ),
    "sample": (
        lambda at, bad: sk.infer_schema(at / "a", bad),
        ["2", 0, 1.5],
        PlanError,
        "sample must be .*1, not",
    ),
    "paths": (
        each(
            lambda at, bad: sk.Loader(bad, FEATURES, 2, RANK),
            lambda at, bad: sk.verify(bad),
            lambda at, bad: sk.audit(bad),
            lambda at, bad: sk.doctor(bad),
            lambda at, bad: sk.infer_schema(bad),
            lambda at, bad: sk.concat(bad, at / "new"),
            lambda at, bad: sk.split(bad, at / "new-{shard}", shards=2),
            lambda at, bad: hdf5.merge(bad, at / "new.h5"),
            lambda at, bad: tfrecord.read_columns(bad, FEATURES),
            lambda at, bad: tfrecord.build_index(bad),
        ),
        [
            None,
            3,
            1.5,
            {"receipt_version": 4, "id": "0"},
            H5Names({"x": 1}),
            io.BytesIO(b"a\nb"),
            io.StringIO("a"),
        ],
        PlanError,
        "a path must be a str or os.PathLike, or several in a list, not",
    ),
    "grace_s": (
        lambda at, bad: tfrecord.follow(at / "a", grace_s=bad),
        [None, "2", -1, float("nan")],
        PlanError,
        "grace_s=.* pass seconds, 0 or more",
    ),
    "file object": (
        lambda at, bad: tfrecord.Reader(bad),
        [io.StringIO("a"), io.TextIOWrapper(io.BytesIO(b"a"))],
        PlanError,
        "a file object must be .*binary.*, not <_io",
    ),
    "address": (
        lambda at, bad: hdf5.Collector(at / "rows.h5", bad),
        [29555, ["tcp://127.0.0.1:*"], b"ipc:///tmp/a"],
        PlanError,
        "address must be a str, such as tcp://host:port, not",
    ),
    "folder among files": (
        lambda at, bad: hdf5.merge([at / bad, at / "a"], at / "new.h5"),
        ["."],
        FormatError,
        "is a folder, not an HDF5 file: pass the folder of a run by itself, or only HDF5 files",
    ),
    "tags": (
        lambda at, bad: tfrecord.read_scalars(at, tags=bad),
        [3],
        PlanError,
        "tags must be a str or several",
    ),
    "skip": (lambda at, bad: sk.cat(at / "a", skip=bad), ["2", -1, None], PlanError, "skip must be .*0, not"),
    "limit": (
        lambda at, bad: sk.cat(at / "a", limit=bad),
        ["2", -1, 1.5],
        PlanError,
        "limit must be .*0, not",
    ),
    "timeout_s": (
        lambda at, bad: sk.files.lock(at / "a", timeout_s=bad),
        ["5", [1]],
        PlanError,
        "timeout_s must be a number of seconds or None, not",
    ),
    "set of paths": (
        lambda at, bad: sk.files.publish_set(bad).__enter__(),
        ["ab", Path("ab")],
        PlanError,
        "paths must be several in a list, not",
    ),
    "mix": (lambda at, bad: sk.Loader.mix(bad), [None, 3], PlanError, "each source must be a pair"),
    "receipts": (lambda at, bad: plan.audit(bad), [3, None], PlanError, "receipts must be a list, not"),
    "epochs": (lambda at, bad: plan.audit([], epochs=bad), [3], PlanError, "epochs must be a list, not 3"),
}


@pytest.mark.parametrize("argument", WRONG)
def test_a_wrong_argument_is_a_typed_error(argument: str, tmp_path: Path) -> None:
    with tfrecord.Writer(tmp_path / "a") as w:
        w.write_example({"x": 1})
    call, values, error, message = WRONG[argument]
    for value in values:
        with pytest.raises(error) as caught:
            call(tmp_path, value)
        assert re.search(message, str(caught.value)), str(caught.value)


def test_record_numbers_out_of_range_are_index_errors(tmp_path: Path) -> None:
    with tfrecord.Writer(tmp_path / "a") as w:
        w.write(b"x")
    reader = tfrecord.Reader(tmp_path / "a")
    for bad in ([2**70], ["a"], None, [1.5, "b"], [0.5], "0"):
        with pytest.raises(IndexError, match="record numbers are integers"):
            reader.read_many(bad)  # type: ignore[arg-type]
    with pytest.raises(IndexError, match="record numbers have one dimension, not 2"):
        reader.read_many(np.zeros((1, 1), int))  # type: ignore[arg-type]
    with pytest.raises(IndexError):
        reader[2**70]

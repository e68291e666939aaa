"""The `repr` of every public class: one short line, without reading a file, also after the end of the object.

Covers `shardkeep._summary`.
"""

from __future__ import annotations

import copy
import dataclasses
import importlib
import inspect
import os
import pickle
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from tests.meta.test_house import PACKAGES

pytestmark = pytest.mark.filterwarnings("ignore:.*ot committed")
LONGEST = 200
ONE = sk.World(0, 1)


def public_classes() -> dict[type, str]:
    """Return the public classes that have instances, with the names of their packages."""
    found = {}
    for name in PACKAGES:
        package = importlib.import_module(name)
        for public in map(package.__getattribute__, package.__all__):
            if inspect.isclass(public) and not issubclass(public, BaseException | Enum):
                found[public] = name
    return {public: name for public, name in found.items() if not getattr(public, "_is_protocol", False)}


CLASSES = public_classes()
DATACLASSES = [public for public in CLASSES if dataclasses.is_dataclass(public)]
OTHERS: dict[type, Callable[[], Any]] = {}


def check(value: Any) -> str:
    """Check the repr of an object, and return it."""
    before = sorted(os.listdir("/proc/self/fd"))
    text = repr(value)
    assert sorted(os.listdir("/proc/self/fd")) == before, "it opened a file"
    assert text.isprintable()
    assert " object at 0x" not in text
    assert type(value).__name__.lower() in text.lower()
    # The temporary folder of a test has a long path, which a user's need not have.
    assert len(text.replace(os.getcwd(), "").replace(tempfile.gettempdir(), "")) <= LONGEST, text
    return text


# -- dataclasses, with long values ------------------------------------------------------------------------


def long_value(annotation: str) -> Any:
    if annotation.startswith(("tuple", "list", "Sequence")):
        return tuple(range(1000))
    if annotation.startswith("dict"):
        return {f"name {i}": "x" * 1000 for i in range(1000)}
    if annotation.startswith(("NDArray", "npt.", "Starts")):
        return np.arange(2, 100_000)
    if annotation.startswith("int"):
        return 2**62
    if annotation.startswith("float"):
        return 1234567.89012345
    if annotation.startswith("bytes"):
        return b"\n" * 10**7
    if annotation.startswith("bool"):
        return True
    return "a long\nline" * 1000 if annotation.startswith("str") else "a literal"


@pytest.mark.parametrize("cls", DATACLASSES, ids=lambda cls: f"{CLASSES[cls]}.{cls.__name__}")
def test_dataclass_with_long_values(cls: Any) -> None:
    made = object.__new__(cls)
    for field in dataclasses.fields(cls):
        limited = cls in (sk.World, sk.FixedLen, sk.VarLen, sk.Image)  # whose values are checked
        value = 7 if limited else long_value(str(field.type))
        object.__setattr__(made, field.name, value)
    check(made)


def test_summary_has_the_values_that_matter() -> None:
    report = sk.jobs.SplitReport(("a", "b"), (), 3, 4096, "balanced", None, True, "0f" * 32, 0.0436)
    assert repr(report).startswith("<SplitReport sources=('a', 'b'), records=3, bytes=4096, mode='balanced'")
    assert repr(report).endswith("seconds=0.0436>")
    many = dataclasses.replace(report, sources=tuple("abcdefgh"))
    assert repr(many).startswith("<SplitReport sources: 8 items, records=3")


@pytest.mark.parametrize("cls", [sk.plan.EpochPlan, sk.hdf5.MergeReport])
def test_tables_of_a_notebook_are_short_whatever_the_values(cls: Any) -> None:
    made = object.__new__(cls)
    for field in dataclasses.fields(cls):
        object.__setattr__(made, field.name, long_value(str(field.type)))
    text = made._repr_html_()
    assert len(text) < 5000 and "\n\n" not in text


def test_tables_of_a_notebook_show_and_escape_what_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkdir("notebook")
    for number in range(30):
        with sk.tfrecord.Writer(f"notebook/<{number:02}>.tfrecord") as out:
            out.write_example({"x": 1, "<b>": 2})
    text = sk.verify("notebook")._repr_html_()
    assert "ok</th><td>True" in text and "the first 20 of 30" in text
    assert "&lt;19&gt;" in text and "<19>" not in text and "&lt;20&gt;" not in text
    plan = sk.plan.EpochPlan(10, 0, 2, 3, "mask")._repr_html_()
    assert "EpochPlan" in plan and "world_size</th><td>2" in plan
    reader = sk.tfrecord.Reader("notebook/<07>.tfrecord")._repr_html_()
    assert "&lt;b&gt;, x" in reader and "<b>" not in reader
    loader = sk.Loader("notebook/*.tfrecord", batch_size=4, world=ONE)._repr_html_()
    assert "30 records in 30 shards" in loader and "batch_size</th><td>4" in loader
    with open("notebook/<07>.tfrecord", "r+b") as file:
        file.truncate(20)
    assert "byte 0" in sk.tfrecord.Reader("notebook/<07>.tfrecord")._repr_html_()


# -- objects with files -----------------------------------------------------------------------------------


def shards(name: str = "a.tfrecord") -> str:
    if not os.path.exists(name):
        with sk.tfrecord.Writer(name) as out:
            for number in range(10):
                out.write_example({"x": number})
    return name


def of(cls: type) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    def register(make: Callable[[], Any]) -> Callable[[], Any]:
        OTHERS[cls] = contextmanager(make)
        return make

    return register


@of(sk.Ragged)
def ragged() -> Iterator[Any]:
    yield sk.Ragged(np.zeros(10**6), np.array([0, 10**6]))


@of(sk.Loader)
def loader() -> Iterator[Any]:
    yield sk.Loader(shards(), {"x": sk.FixedLen()}, 4, ONE)


@of(sk.tfrecord.Reader)
def reader() -> Iterator[Any]:
    yield sk.tfrecord.Reader(shards())


@of(sk.tfrecord.Schema)
def schema() -> Iterator[Any]:
    with sk.tfrecord.Writer("wide.tfrecord") as out:
        out.write_example({f"a feature with a long name, number {i}": i for i in range(100)})
    yield sk.infer_schema("wide.tfrecord")


@of(sk.tfrecord.Writer)
def writer() -> Iterator[Any]:
    with sk.tfrecord.Writer("out.tfrecord") as out:
        out.write(b"a")
        yield out


@of(sk.tfrecord.ShardWriter)
def shard_writer() -> Iterator[Any]:
    with sk.tfrecord.ShardWriter("out-{shard}.tfrecord", shards=3) as out:
        out.write(b"a")
        yield out


@of(sk.files.lock("").__class__)
def lock() -> Iterator[Any]:
    with sk.files.lock("locked") as held:
        yield held


@of(sk.hdf5.WorkerFile)
def worker_file() -> Iterator[Any]:
    with sk.hdf5.WorkerFile("run", ONE) as out:
        out.append("x", [1, 2])
        out.commit(step=1)
        yield out


@of(sk.hdf5.Guard)
def guard() -> Iterator[Any]:
    with sk.hdf5.guard() as watch:
        yield watch


@contextmanager
def opened() -> Iterator[Any]:
    with sk.hdf5.open("all.h5", "w") as file:
        file.create_group("g")["x"] = np.arange(3)
        file.attrs["unit"] = "nats"
    with sk.hdf5.open("all.h5") as file:
        yield file


@of(sk.hdf5.File)
def file() -> Iterator[Any]:
    with opened() as file:
        yield file


@of(sk.hdf5.Group)
def group() -> Iterator[Any]:
    with opened() as file:
        yield file["g"]


@of(sk.hdf5.Dataset)
def dataset() -> Iterator[Any]:
    with opened() as file:
        yield file["g/x"]


@of(sk.hdf5.Attributes)
def attributes() -> Iterator[Any]:
    with opened() as file:
        yield file.attrs


@of(sk.hdf5.Collector)
def collector() -> Iterator[Any]:
    with sk.hdf5.Collector("collected.h5") as running:
        yield running


@of(sk.hdf5.Client)
def client() -> Iterator[Any]:
    with sk.hdf5.Collector("collected.h5") as running, running.connect(ONE) as client:
        client.append("x", 1.0)
        yield client


def test_every_public_class_is_here() -> None:
    assert set(CLASSES) - set(DATACLASSES) == set(OTHERS)


@pytest.mark.parametrize("cls", OTHERS, ids=lambda cls: cls.__name__)
def test_object_in_use_and_after_its_end(cls: type, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with OTHERS[cls]() as made:
        check(made)
        assert in_forked_child(made)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            copies = pickled(made)
    check(made)
    for left in tmp_path.iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    check(made)
    for one in copies:
        check(one)


def in_forked_child(value: Any) -> bool:
    pid = os.fork()
    if pid == 0:
        try:
            check(value)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def pickled(value: Any) -> list[Any]:
    """Return a copy through pickle; none of an object that belongs to its process."""
    try:
        return [pickle.loads(pickle.dumps(value)), copy.copy(value)]
    except (sk.ShardkeepError, TypeError, pickle.PicklingError):
        return []

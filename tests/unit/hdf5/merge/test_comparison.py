import dataclasses

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError, PlanError
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.hdf5.merge import comparison, copy, result
from shardkeep.hdf5.merge.keyed_rows import KeyedRows
from shardkeep.world import World


def write(folder, files, rows=40, **options):
    paths = [folder / f"{number:03d}.h5" for number in range(files)]
    for number, path in enumerate(paths):
        with h5py.File(path, "w", libver=options.pop("libver", "earliest")) as file:
            file.create_dataset("x", data=np.arange(rows * 8.0).reshape(rows, 8) + number, **options)
            file["id"] = np.arange(rows) * files + number
    return paths


@pytest.mark.parametrize("check", ["sample", "full"])
def test_a_wrong_table_of_chunks_is_found(tmp_path, monkeypatch, check):
    """Where only some chunks were written, the wrong places that HDF5 reports all lie within the shape."""
    monkeypatch.setattr("shardkeep.hdf5.storage.chunk_table._is_misreported", lambda item, shape: False)
    values = np.arange(64).reshape(8, 8)
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        dataset = file.create_dataset(
            "x", (8, 8), "i8", chunks=(2, 2), maxshape=(8, None), compression="gzip"
        )
        dataset[:, :2] = values[:, :2]
    with pytest.raises(CorruptDataError, match=r"other values than row.* of 'x' in .*a\.h5.*not kept"):
        merge([tmp_path / "a.h5"], tmp_path / "all.h5", check=check)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5"]


def test_rows_in_a_wrong_order_are_found(tmp_path, monkeypatch):
    """The sum of hashes that ties the rows together does not depend on their order."""
    window = KeyedRows._window
    monkeypatch.setattr(KeyedRows, "_window", lambda self, *rows: window(self, *rows)[::-1])
    with pytest.raises(CorruptDataError, match="other values"):
        merge(write(tmp_path, 3), tmp_path / "all.h5", order_by="id")
    assert not (tmp_path / "all.h5").exists()


@pytest.mark.parametrize("by_value", [False, True])
def test_a_virtual_dataset_of_other_rows_is_found(tmp_path, monkeypatch, by_value):
    paths = write(tmp_path, 2)
    monkeypatch.setattr(result, "_source_file", lambda plan, number: paths[0].name.encode())
    if by_value:
        monkeypatch.setattr(comparison._Result, "_check_mappings", lambda self: None)
    match = r"other values than row 0 of .* in .*001\.h5" if by_value else "other mappings of"
    with pytest.raises(CorruptDataError, match=match):
        merge(paths, tmp_path / "all.h5", mode="virtual")
    assert not (tmp_path / "all.h5").exists()


@pytest.mark.parametrize("wrong", ["first_row", "rows", "file"])
def test_one_wrong_mapping_among_many_is_found(tmp_path, monkeypatch, wrong):
    """Values of 32 of the 60 sources are compared, mappings of all."""
    paths = write(tmp_path, 60, rows=4)
    create = result.create_virtual

    def create_wrongly(file, one, plan):
        parts = list(one.parts)
        if wrong == "file":
            parts[20], parts[21] = (
                parts[20]._replace(source=21),
                parts[21]._replace(source=20),
            )
        else:
            change = {wrong: getattr(parts[20], wrong) - 1}
            parts[20] = parts[20]._replace(**change)
        return create(file, dataclasses.replace(one, parts=tuple(parts)), plan)

    monkeypatch.setattr(copy, "create_virtual", create_wrongly)
    with pytest.raises(CorruptDataError, match="other mappings of 'id' than planned"):
        merge(paths, tmp_path / "all.h5", mode="virtual")


def test_each_of_many_virtual_datasets_is_compared(tmp_path):
    paths = [tmp_path / f"{number:02d}.h5" for number in range(40)]
    for number, path in enumerate(paths):
        with h5py.File(path, "w") as file:
            for name in range(50):
                file[f"d{name}"] = [number, name]
    report = merge(paths, tmp_path / "all.h5", mode="virtual")
    assert len(report.compared) == 50
    assert all(rows == 2 * 3 for rows in report.compared.values())


@pytest.mark.parametrize("mode", ["copy", "virtual"])
@pytest.mark.parametrize("order", ["rank", "id"])
@pytest.mark.parametrize("options", [{}, {"compression": "gzip", "chunks": (5, 8)}], ids=["plain", "gzip"])
def test_the_report_counts_what_was_compared(tmp_path, mode, order, options):
    paths = write(tmp_path, 3, **options)
    full = merge(paths, tmp_path / "full.h5", mode=mode, order_by=order, check="full")
    assert (full.check, full.compared) == ("full", {"x": 120, "id": 120})
    some = merge(paths, tmp_path / "some.h5", mode=mode, order_by=order)
    assert some.check == "sample"
    assert all(6 <= rows < 120 for rows in some.compared.values())
    assert some.to_dict()["compared"] == some.compared


def test_rows_in_the_order_of_steps_are_compared(tmp_path):
    for rank in range(2):
        with WorkerFile(tmp_path / "run", World(rank, 2)) as out:
            for step in range(3):
                out.append("x", np.arange(10.0) + 10 * rank + step)
                out.append("text", [f"{rank} {step}"] * 4)
                out.commit(step=step)
    report = merge(tmp_path / "run", tmp_path / "all.h5", order_by="step", check="full")
    assert report.compared == {"x": 60, "text": 24}


def test_the_sample_has_rows_of_each_source(tmp_path):
    paths = write(tmp_path, 40, rows=100)
    report = merge(paths, tmp_path / "all.h5")
    assert 2 * 40 <= report.compared["x"] <= 3 * 40
    report = merge(paths, tmp_path / "virtual.h5", mode="virtual")
    assert 2 * 32 <= report.compared["x"] <= 3 * 32


def test_the_sample_of_many_segments_is_bounded(tmp_path):
    """Their rows have hashes, which a merge compares in any case."""
    with WorkerFile(tmp_path / "run", World(0, 1)) as out:
        for step in range(40):
            out.append("x", np.arange(100.0))
            out.commit(step=step)
    report = merge(tmp_path / "run", tmp_path / "all.h5")
    assert 2 * 32 <= report.compared["x"] <= 3 * 32


def test_an_unknown_check_is_refused(tmp_path):
    with pytest.raises(PlanError, match='use "sample" or "full"'):
        merge(write(tmp_path, 1), tmp_path / "all.h5", check="some")


def test_filtered_datasets_that_were_never_written_are_merged(tmp_path):
    paths = [tmp_path / f"{number}.h5" for number in range(3)]
    for path in paths:
        with h5py.File(path, "w") as file:
            file.create_dataset("x", (40,), "i4", chunks=(5,), compression="gzip", fillvalue=7)
    assert merge(paths, tmp_path / "all.h5").rows == {"x": 120}
    with h5py.File(tmp_path / "all.h5") as file:
        assert (file["x"][()] == 7).all()

"""Further names, links and named types of files that are merged: kept, or named and refused; never silent.

Covers `shardkeep.hdf5.sources.links`.
"""

from __future__ import annotations

import warnings

import h5py
import numpy as np
import pytest

from shardkeep.errors import SchemaError
from shardkeep.hdf5 import merge, verify
from shardkeep.hdf5.merge.planner import plan_merge
from shardkeep.hdf5.sources.links import LinkInfo, resolve


def files_of(folder, *builders):
    paths = []
    for number, build in enumerate(builders):
        paths.append(folder / f"{number}.h5")
        with h5py.File(paths[-1], "w") as file:
            file["g/x"] = np.arange(3) + number
            build(file)
    return paths


def alike(build):
    return build, build


@pytest.mark.parametrize("mode", ["copy", "virtual"])
def test_a_dataset_and_a_group_with_two_names_keep_both(tmp_path, mode):
    def build(file):
        file["again"] = file["g/x"]
        file["g/inner"] = file["g/x"]
        file["h"] = file["g"]
        file["g/up"] = file["/"]

    report = merge(files_of(tmp_path, *alike(build)), tmp_path / "all.h5", mode=mode)
    assert report.rows == {"again": 6}
    assert report.left_out == {}
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["again"][:].tolist() == [0, 1, 2, 1, 2, 3]
        assert file["g/x"] == file["again"] == file["g/inner"] == file["h/x"]
        assert file["h"] == file["g"]
        assert file["g/up"] == file["/"]
    assert verify(tmp_path / "all.h5").ok


def test_soft_links_stay_soft_links_and_named_types_stay_named(tmp_path):
    def build(file):
        file["s"] = h5py.SoftLink("/g/x")
        file["g/near"] = h5py.SoftLink("x")
        file["nowhere"] = h5py.SoftLink("/not/there")
        file["kinds/pair"] = np.dtype([("a", "<i4"), ("b", ">f8", (2,))])
        file["kinds/pair"].attrs["unit"] = "mm"
        file["pair2"] = file["kinds/pair"]
        file["ünï"] = h5py.SoftLink("/g")

    report = merge(files_of(tmp_path, *alike(build)), tmp_path / "all.h5")
    assert report.left_out == {}
    with h5py.File(tmp_path / "all.h5") as file:
        assert file.get("s", getlink=True).path == "/g/x"
        assert file["s"] == file["g/x"] == file["g/near"] == file["ünï/x"]
        assert file.get("g/near", getlink=True).path == "x"
        assert file.get("nowhere", getlink=True).path == "/not/there"
        assert file["kinds/pair"].dtype == np.dtype([("a", "<i4"), ("b", ">f8", (2,))])
        assert file["kinds/pair"].attrs["unit"] == "mm"
        assert file["pair2"] == file["kinds/pair"]


def other_file(file):
    file["away"] = h5py.ExternalLink("other.h5", "/rows")


def nothing(file):
    pass


def soft_x(file):
    file["s"] = h5py.SoftLink("/g/x")


def soft_g(file):
    file["s"] = h5py.SoftLink("/g")


def named_i4(file):
    file["t"] = np.dtype("i4")


def named_f4(file):
    file["t"] = np.dtype("f4")


def hard(file):
    file["s"] = file["g/x"]


@pytest.mark.parametrize(
    ("builders", "said"),
    [
        ((other_file, other_file), "'away' is a link to another file, other.h5:/rows"),
        ((soft_x, nothing), "'s' is a soft link to '/g/x' in .*0.h5', and missing elsewhere"),
        ((soft_x, soft_g), "'s' is a soft link to '/g/x' in .*, and a soft link to '/g' elsewhere"),
        ((named_i4, named_f4), "'t' is the named type int32 in .*, and the named type float32 elsewhere"),
        ((soft_x, hard), "'s' is a soft link to '/g/x' in"),
        ((hard, nothing), "'s' is another name of 'g/x' in"),
    ],
)
def test_links_that_differ_or_lead_to_other_files_are_refused_or_named(tmp_path, builders, said):
    paths = files_of(tmp_path, *builders)
    with pytest.raises(SchemaError, match=said) as error:
        merge(paths, tmp_path / "all.h5")
    assert error.value.table
    name = error.value.table[0]["name"]
    plan = plan_merge(paths, tmp_path / "all.h5", on_mismatch="promote")
    assert list(plan.left_out) == [name]
    assert f"{name} is left out: " in str(plan)
    assert plan.to_dict()["left_out"] == plan.left_out
    with pytest.warns(RuntimeWarning, match=f"left out of .*{name}: "):
        report = merge(paths, tmp_path / "all.h5", on_mismatch="promote")
    assert report.left_out == plan.left_out
    with h5py.File(report.output) as file:
        assert name not in file
        assert file["g/x"][:].tolist() == [0, 1, 2, 1, 2, 3]


def test_a_soft_link_is_left_out_with_its_target(tmp_path):
    def build(file):
        named_i4(file)
        file["to_type"] = h5py.SoftLink("/t")
        file["t_again"] = file["t"]

    def other(file):
        named_f4(file)
        file["to_type"] = h5py.SoftLink("/t")
        file["t_again"] = file["t"]

    with pytest.warns(RuntimeWarning, match="to_type"):
        report = merge(files_of(tmp_path, build, other), tmp_path / "all.h5", on_mismatch="promote")
    assert set(report.left_out) == {"t", "t_again", "to_type"}


def own_rows(file):
    file["s"] = np.arange(2)


@pytest.mark.parametrize("on_mismatch", ["refuse", "promote"])
@pytest.mark.parametrize("link", [soft_x, hard, other_file])
def test_a_link_in_one_file_and_a_dataset_in_another_are_always_refused(tmp_path, link, on_mismatch):
    def rows(file):
        file["away" if link is other_file else "s"] = np.arange(2)

    for builders in ((link, rows), (rows, link)):
        with pytest.raises(SchemaError, match="and a dataset elsewhere"):
            merge(files_of(tmp_path, *builders), tmp_path / "all.h5", on_mismatch=on_mismatch)
    assert not (tmp_path / "all.h5").exists()


def test_a_link_in_one_file_and_a_group_in_another_are_refused(tmp_path):
    def group(file):
        file.create_group("s").attrs["a"] = 1

    with pytest.raises(SchemaError, match="and a group elsewhere"):
        merge(files_of(tmp_path, soft_g, group), tmp_path / "all.h5", on_mismatch="promote")


ATTRIBUTES = {
    "object": lambda file: file["g/x"].attrs.create("r", file["g"].ref),
    "region": lambda file: file["g/x"].attrs.create("r", file["g/x"].regionref[1:]),
    "in a compound": lambda file: file["g/x"].attrs.create(
        "r", np.array((1, file["g"].ref), [("n", "i4"), ("to", h5py.ref_dtype)])
    ),
    "of variable length": lambda file: file["g/x"].attrs.create(
        "r", np.array([file["g"].ref], h5py.ref_dtype), dtype=h5py.ref_dtype
    ),
    "tagged": lambda file: _tagged(file["g/x"]),
}


def _tagged(dataset):
    kind = h5py.h5t.create(h5py.h5t.OPAQUE, 4)
    kind.set_tag(b"mine")
    h5py.h5a.create(dataset.id, b"r", kind, h5py.h5s.create(h5py.h5s.SCALAR))


@pytest.mark.parametrize("kind", ATTRIBUTES)
def test_attributes_that_refer_to_objects_are_named(tmp_path, kind):
    paths = files_of(tmp_path, *alike(ATTRIBUTES[kind]))
    plan = plan_merge(paths, tmp_path / "all.h5")
    assert list(plan.left_out) == ["g/x@r"]
    with pytest.warns(RuntimeWarning, match="g/x@r: "):
        report = merge(paths, tmp_path / "all.h5")
    assert report.dropped_attributes == {"g/x": ("r",)}
    with h5py.File(report.output) as file:
        assert list(file["g/x"].attrs) == []


def test_a_user_block_is_reported_as_left_out(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w", userblock_size=512) as file:
        file["x"] = [1]
    with pytest.warns(RuntimeWarning, match="user block"):
        merge([tmp_path / "a.h5"], tmp_path / "all.h5")


def test_kept_links_are_in_the_plan(tmp_path):
    paths = files_of(tmp_path, *alike(soft_x))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        plan = merge(paths, tmp_path / "all.h5", dry_run=True)
    assert plan.to_dict()["links"] == {"s": "a soft link to '/g/x'"}
    assert "s: a soft link to '/g/x'" in str(plan)


def test_circular_links_have_no_target():
    links = {"a": LinkInfo("soft", "/b"), "b": LinkInfo("soft", "/a")}
    assert resolve("/a", "c", {"x"}, links) is None
    assert resolve("/x/y", "c", {"x"}, links) is None
    assert resolve(".", "g/c", {"g"}, links) == "g"

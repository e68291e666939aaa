from __future__ import annotations

import os
import shlex
import shutil

import h5py
import numpy as np
import pytest

from shardkeep.errors import CorruptDataError, ExistsError, FormatError, NotFoundError
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.jobs.repair import repair
from shardkeep.jobs.salvage.run import salvage_run
from shardkeep.jobs.verify import verify
from shardkeep.world import World
from tests.damaged_runs import ROWS, damage_rows, make_run, read_merged, rows_of, segments_of, tree


def _repair(run, tmp_path):
    """Salvage a run; return the report and the commits of the merged result."""
    before = tree(run)
    result = salvage_run(str(run), str(tmp_path / "out"), tick=lambda _: None)
    assert tree(run) == before
    if result.output is None:
        assert not (tmp_path / "out").exists()
        return result, set()
    merge(tmp_path / "out", tmp_path / "all.h5", incomplete="allow")
    return result, read_merged(tmp_path / "all.h5")


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory):
    """Return the folder of 2 ranks with 4 commits; not to be changed."""
    run = tmp_path_factory.mktemp("whole") / "run"
    make_run(run, 2, 4)
    return run


def _write(path, data):
    path.write_bytes(data)


def _cut(path):
    os.truncate(path, path.stat().st_size - 1000)


def _damage_record(path):
    data = path.read_bytes()
    at = data.index(b'"incarnation":"') + 20
    path.write_bytes(data[:at] + b"zzzz" + data[at + 4 :])


def _damage_superblock(path):
    data = path.read_bytes()
    path.write_bytes(b"\0" * 64 + data[64:])


# Name: damage of the files of 2 ranks with 4 commits; lost commits.
CASES = {
    "nothing": (lambda run, at: None, set()),
    "rows damaged": (lambda run, at: damage_rows(at[1, 1]), {(1, 1)}),
    "two in a row": (lambda run, at: [damage_rows(at[1, 1]), _damage_record(at[1, 2])], {(1, 1), (1, 2)}),
    "cut": (lambda run, at: _cut(at[0, 3]), {(0, 3)}),
    "first one cut": (lambda run, at: _cut(at[0, 0]), {(0, 0)}),
    "empty": (lambda run, at: _write(at[0, 2], b""), {(0, 2)}),
    "another kind": (lambda run, at: _write(at[0, 2], b"<!DOCTYPE html><title>Sign in</title>"), {(0, 2)}),
    "missing": (lambda run, at: os.unlink(at[1, 2]), {(1, 2)}),
    "two missing": (lambda run, at: [os.unlink(at[1, 0]), os.unlink(at[1, 1])], {(1, 0), (1, 1)}),
    "record damaged": (lambda run, at: _damage_record(at[1, 0]), {(1, 0)}),
    "superblock damaged": (lambda run, at: _damage_superblock(at[1, 3]), {(1, 3)}),
    "a whole rank": (lambda run, at: [_cut(at[1, n]) for n in range(4)], {(1, n) for n in range(4)}),
    "rank folder removed": (lambda run, at: shutil.rmtree(at[1, 0].parent), {(1, n) for n in range(4)}),
    "all": (
        lambda run, at: [_write(one, b"\0" * 5000) for one in at.values()],
        {(r, n) for r in range(2) for n in range(4)},
    ),
    "renamed": (lambda run, at: at[0, 1].rename(at[0, 1].with_name("00000007-step-9.h5")), set()),
    "renamed to no segment": (lambda run, at: at[0, 1].rename(at[0, 1].with_name("old.bak")), set()),
    "newest renamed to no segment": (
        lambda run, at: at[0, 3].rename(at[0, 3].with_name("old.bak")),
        {(0, 3)},
    ),
    "copied": (lambda run, at: shutil.copy(at[0, 1], at[0, 1].with_name("00000001-step-20 (1).h5")), set()),
    "copied under another number": (
        lambda run, at: shutil.copy(at[0, 1], at[0, 1].with_name("00000004-step-50.h5")),
        set(),
    ),
    "damaged, with a copy": (
        lambda run, at: [shutil.copy(at[0, 1], at[0, 1].with_suffix(".bak")), damage_rows(at[0, 1])],
        set(),
    ),
    "exchanged": (lambda run, at: _exchange(at[0, 1], at[0, 2]), set()),
    "exchanged between ranks": (lambda run, at: _exchange(at[0, 3], at[1, 3]), set()),
    "replaced by another one": (lambda run, at: shutil.copy(at[0, 1], at[0, 2]), {(0, 2)}),
    "a killed writer": (
        lambda run, at: _write(
            at[0, 0].with_name(".segment.h5.sk-0123abcd-0123abcd-4026531836-17-5-0123abcd.sktmp"), b"x" * 9000
        ),
        set(),
    ),
    "a folder of a lock": (lambda run, at: _write(at[0, 0].with_name("writer.lock"), b"{}"), set()),
}


def _exchange(one, other):
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


def _slow(name):
    return pytest.param(name, marks=pytest.mark.slow)


# The others differ less from these than from each other.
OFTEN = [
    "nothing",
    "rows damaged",
    "two in a row",
    "empty",
    "missing",
    "record damaged",
    "a whole rank",
    "all",
    "renamed",
    "newest renamed to no segment",
    "copied",
    "exchanged between ranks",
    "replaced by another one",
    "a killed writer",
]


@pytest.mark.parametrize("name", [name if name in OFTEN else _slow(name) for name in CASES])
def test_whole_commits_are_kept(tmp_path, whole_run, name):
    run = tmp_path / "run"
    shutil.copytree(whole_run, run)
    at = segments_of(run)
    damage, lost = CASES[name]
    damage(run, at)
    result, commits = _repair(run, tmp_path)
    assert commits == set(at) - lost
    assert result.items("kept") + result.items("repaired") == 3 * ROWS * len(commits)
    assert result.ok == (not lost or name == "newest renamed to no segment")
    assert (result.output is None) == (name == "all")
    names = [os.path.relpath(at[one], run) for one in lost if at[one].exists()]
    texts = [*(one.reason for one in result.parts if one.outcome == "lost"), *result.notes]
    assert all(any(name in text for text in texts) for name in names)


def test_the_report_names_rank_step_rows_and_bytes(tmp_path, whole_run):
    run = tmp_path / "run"
    shutil.copytree(whole_run, run)
    at = segments_of(run)
    damage_rows(at[1, 1])
    os.unlink(at[0, 1])
    os.unlink(at[0, 2])
    result, _ = _repair(run, tmp_path)
    size_bytes = at[1, 1].stat().st_size
    lost = [(one.items, one.dataset, one.bytes) for one in result.parts if one.outcome == "lost"]
    assert lost == [
        *((6, name, None) for name in "zxt"),
        *((0, name, None) for name in ("v1", "v2")),
        *((3, name, size_bytes if name == "z" else None) for name in "zxt"),
        (0, "v1", None),
    ]
    reasons = [one.reason for one in result.parts]
    assert reasons[1] == "commits 1 to 2 of rank 0: missing"
    text = (
        "commit 1 of rank 1 (step 20), rank-00001/00000001-step-20.h5: rows of 'x' in the file are not those "
    )
    assert reasons[8].startswith(text)
    assert result.file_bytes == sum(one.stat().st_size for one in at.values() if one.exists())


def test_the_notes_say_what_a_merge_reports(tmp_path, whole_run):
    run = tmp_path / "run"
    shutil.copytree(whole_run, run)
    os.unlink(segments_of(run)[1, 1])
    result, _ = _repair(run, tmp_path)
    finding, command = result.notes
    out = tmp_path / "out"
    assert finding == (
        "a merge reports: commit 1 of rank 1 is missing (3 rows of 'z', 3 rows of 'x', 3 rows of 't', "
        f"the value 'v1') in {str(out)!r}"
    )
    assert command == f"merge it with: shardkeep merge --incomplete warn {out} {out}.h5"
    with pytest.raises(CorruptDataError, match="commit 1 of rank 1 is missing"):
        merge(out, tmp_path / "b.h5")


def test_a_dry_run_reports_the_same_and_writes_nothing(tmp_path, whole_run):
    run = tmp_path / "run"
    shutil.copytree(whole_run, run)
    damage_rows(segments_of(run)[1, 1])
    before = tree(tmp_path)
    ticks = []
    dry = salvage_run(str(run), None, tick=ticks.append)
    assert tree(tmp_path) == before
    assert sum(ticks) == dry.file_bytes and dry.output is None
    assert dry.parts == _repair(run, tmp_path)[0].parts


def test_the_new_run_is_independent_of_the_old_one(tmp_path, whole_run):
    run = tmp_path / "run"
    shutil.copytree(whole_run, run)
    _repair(run, tmp_path)
    inodes = {one.stat().st_ino for folder in (run, tmp_path / "out") for one in segments_of(folder).values()}
    assert len(inodes) == 2 * 8


def test_workers_continue_a_run_that_lost_its_newest_commits(tmp_path, whole_run):
    run = tmp_path / "run"
    shutil.copytree(whole_run, run)
    at = segments_of(run)
    for rank in range(2):
        damage_rows(at[rank, 3])
    _repair(run, tmp_path)
    for rank in range(2):
        with WorkerFile(tmp_path / "out", World(rank=rank, size=2)) as out:
            assert out.committed_step == 30
            out.append("x", rows_of(rank, 3))
            out.append("z", np.stack([rows_of(rank, 3)] * 2, axis=1))
            out.append("t", [str(one) for one in rows_of(rank, 3)])
            out.commit(step=40)
    merge(tmp_path / "out", tmp_path / "all.h5", exists="replace")
    assert read_merged(tmp_path / "all.h5") == set(at)


def test_an_output_with_segments_is_refused(tmp_path, whole_run):
    with pytest.raises(ExistsError, match="has segments, which would be mixed"):
        salvage_run(str(whole_run), str(whole_run), tick=lambda _: None)
    with pytest.raises(NotFoundError, match="no segment"):
        salvage_run(str(tmp_path), str(tmp_path / "out"), tick=lambda _: None)


def test_what_a_kill_leaves_is_refused_by_a_merge(tmp_path, whole_run):
    """The first commits are written last."""

    def stop(_):
        if (tmp_path / "out").exists() and len(segments_of(tmp_path / "out")) == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        salvage_run(str(whole_run), str(tmp_path / "out"), tick=stop)
    with pytest.raises(CorruptDataError, match="commit 0 of rank 1 is missing"):
        merge(tmp_path / "out", tmp_path / "all.h5")


@pytest.mark.parametrize(
    "name",
    [
        "rows damaged",
        "another kind",
        *map(_slow, ["cut", "record damaged", "renamed", "copied under another number"]),
    ],
)
def test_a_merge_of_a_damaged_run_names_the_repair(tmp_path, whole_run, name):
    """The command in the message works, and so does the merge of its result."""
    run = tmp_path / "a run"
    shutil.copytree(whole_run, run)
    CASES[name][0](run, segments_of(run))
    with pytest.raises((CorruptDataError, FormatError)) as caught:
        merge(run, tmp_path / "all.h5")
    text = str(caught.value)
    assert f"or run `shardkeep repair '{run}' '{run}.repaired'` and merge" in text and "\n" not in text
    assert caught.value.path is not None and os.path.exists(caught.value.path)
    program, command, *paths = shlex.split(text.split("`")[1])
    assert (program, command) == ("shardkeep", "repair")
    repair(*paths)
    merge(f"{run}.repaired", tmp_path / "all.h5", incomplete="allow")
    assert read_merged(tmp_path / "all.h5") == set(segments_of(whole_run)) - CASES[name][1]


def test_a_cut_that_a_crash_interrupted_stays_a_cut(tmp_path):
    run = tmp_path / "run"
    with WorkerFile(run, World(0, 1)) as out:
        out.append("x", np.arange(5))
        out.mark(1)
        out.append("x", np.arange(5, 8))
        out.commit(step=2)
        whole = run / "rank-00000" / "00000000-step-2.h5"
        data = whole.read_bytes()
        out.rollback(step=1)
    whole.with_name("00000000-step-1.h5").rename(whole.with_name("00000000-step-1-from-2.h5"))
    _write(whole, data)
    assert verify(run).ok
    result = salvage_run(str(run), str(tmp_path / "out"), tick=lambda _: None)
    assert "00000000-step-2.h5 is not used: a rollback has cut it" in " ".join(result.notes), result.notes
    merge(tmp_path / "out", tmp_path / "all.h5")
    with h5py.File(tmp_path / "all.h5") as file:
        assert file["x"][:].tolist() == [0, 1, 2, 3, 4]


def test_ranks_that_ended_at_different_steps_have_still_ended(tmp_path):
    run = tmp_path / "run"
    for rank, steps in enumerate((3, 2)):
        with WorkerFile(run, World(rank, 2)) as out:
            for step in range(steps):
                out.append("x", [step])
                out.commit(step=step)
            out.finish()
    _write(run / "rank-00000" / "00000000-step-0.h5", b"")
    result = salvage_run(str(run), str(tmp_path / "out"), tick=lambda _: None)
    assert not [note for note in result.notes if "rank 1" in note], result.notes
    report = merge(tmp_path / "out", tmp_path / "all.h5", incomplete="allow")
    assert not [finding for finding in report.findings if "rank 1" in finding], report.findings

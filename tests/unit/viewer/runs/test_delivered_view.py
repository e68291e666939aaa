"""The epochs of a run as its receipts prove them.

Covers `shardkeep.viewer.runs.receipts`, `shardkeep.viewer.runs.deliveries`, `shardkeep.viewer.kept` and
`shardkeep.viewer.runs.commit_records`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time

import h5py
import numpy as np
import pytest

from shardkeep import World
from shardkeep.hdf5 import WorkerFile, merge
from shardkeep.plan import Dataset, Receipt, Segment, audit
from shardkeep.plan.mixture import Mixture, Part
from shardkeep.plan.proof import description
from shardkeep.plan.proof.audit import Evidence
from shardkeep.plan.proof.evidence import read_receipts
from shardkeep.viewer.runs import receipts
from shardkeep.viewer.runs.deliveries import Deliveries
from tests.waiting import eventually

from .run_makers import train, write_shards


@pytest.fixture(autouse=True)
def _nothing_is_known():
    receipts.recent_receipts._known.clear()


def _deliveries(made: list[int], *, is_written: bool = False, **changed) -> Deliveries:
    given = {
        "batch_size": 2,
        "remainder": "mask",
        "dataset": Dataset("c0ffee", 40, ("a", "b"), (15, 25), (150, 250)),
        "shuffle": False,
        "seed": 3,
        **changed,
    }
    found = [
        Receipt(id=f"{rank:032x}", rank=rank, world_size=len(made), segments=(Segment(0, 0, steps),), **given)
        for rank, steps in enumerate(made)
    ]
    return Deliveries(Evidence(*read_receipts(found)), 0, is_written=is_written)


def _records(found: Deliveries, kind: str) -> list[int]:
    rows = found.rows(kind, 0, 100) if kind in found.bands else []
    return sorted(
        int(found.table.offsets[span.shard]) + index
        for row in rows
        for span in row.spans
        for index in range(span.first, span.last + 1)
    )


def test_a_whole_epoch_is_shown(shown, tmp_path):
    paths = write_shards(tmp_path / "data")
    train(tmp_path / "run", paths, [12, 12])
    status, text = shown("0/run?view=delivered")
    assert status == 200 and "Epoch 0: each record once" in text and "120 of 120 records delivered" in text
    assert "lost" not in text and "All records are drawn." in text
    assert text.count("delivered once") > 20


def test_a_lost_record_is_a_link_to_its_page(shown, page, tmp_path):
    """Rank 1 was killed after 4 steps, and rank 0 made 9: five batches are lost, the rest is not reached."""
    paths = write_shards(tmp_path / "data")
    train(tmp_path / "run", paths, [9, 4])
    status, text = shown("0/run?view=delivered")
    assert status == 200 and "Epoch 0: not exactly once" in text
    assert "25 lost" in text and "30 not delivered yet" in text and "rank 1 made fewer" in text
    content = page().get("0/run?view=delivered").text
    first = re.search(r'<tr><td class="text">\s*<a href="([^"]+)">(a-\d).tfrecord: (\d+)', content)
    assert first is not None
    record = page().get(first[1].replace("&amp;", "&").split("/", 2)[2])
    assert record.status_code == 200 and f"record {first[3]}" in record.text
    assert len(re.findall(r"<rect ", content)) > 10
    # Seen from the data set: its epoch has a link to this page.
    assert '/0/run?view=delivered">run</a>' in page().get("0/data?view=epoch").text


def test_records_that_two_runs_delivered_are_shown_with_their_ranks(shown, tmp_path):
    paths = write_shards(tmp_path / "data")
    state = train(tmp_path / "old", paths, [4, 4])
    train(tmp_path / "run", paths, [6, 6])
    train(tmp_path / "run", paths, [6, 6, 6], state=state, begin=100)
    status, text = shown("0/run?view=delivered")
    assert status == 200 and "20 delivered several times" in text and "ranks 0-1, then ranks 0-2" in text
    assert "both delivered positions 40 to 59" in text


def test_a_record_that_was_skipped_as_damaged_is_a_link(shown, page, tmp_path):
    paths = write_shards(tmp_path / "data")
    with open(paths[1], "r+b") as file:
        file.seek(15)
        file.write(b"\xff")
    train(tmp_path / "run", paths, [12, 12], on_corrupt="skip")
    status, text = shown("0/run?view=delivered")
    assert status == 200 and "1 skipped as damaged" in text and "119 of 120 records delivered" in text
    assert (
        'a-1.tfrecord?view=records&amp;record=0">a-1.tfrecord record 0'
        in page().get("0/run?view=delivered").text
    )


def test_a_run_without_receipts_names_the_call(shown, tmp_path):
    with WorkerFile(tmp_path / "run", World()) as out:
        out.append("loss", [0.5])
        out.commit(step=1)
    status, text = shown("0/run?view=delivered")
    assert status == 200 and "receipt=loader.receipt()" in text


def test_shards_elsewhere_are_named_without_a_link(shown, page, tmp_path):
    paths = write_shards(tmp_path / "elsewhere")
    train(tmp_path / "root" / "run", paths, [9, 4])
    content = page(tmp_path / "root").get("0/run?view=delivered").text
    assert "not below the files and folders of this page" in content
    assert re.search(r"a-\d.tfrecord: \d+", content) and "view=records" not in content
    both = page(tmp_path / "root", tmp_path / "elsewhere").get("0/run?view=delivered").text
    assert "/1/a-0.tfrecord?view=records" in both
    os.unlink(paths[1])
    receipts.recent_receipts._known.clear()
    both = page(tmp_path / "root", tmp_path / "elsewhere").get("0/run?view=delivered").text
    assert "view=records" not in both


def test_a_run_that_is_written_has_no_loss_where_a_rank_has_not_committed(shown, tmp_path):
    paths = write_shards(tmp_path / "data")
    train(tmp_path / "run", paths, [9, 4])
    with WorkerFile(tmp_path / "run", World(rank=1, size=2)):
        status, text = shown("0/run?view=delivered")
        assert status == 200 and "1 rank being written" in text and " lost" not in text
        assert "55 not delivered yet" in text
    assert "25 lost" in shown("0/run?view=delivered")[1]


def test_new_commits_are_shown(shown, tmp_path):
    paths = write_shards(tmp_path / "data")
    state = train(tmp_path / "run", paths, [4, 4])
    assert "40 of 120 records delivered" in shown("0/run?view=delivered")[1]
    train(tmp_path / "run", paths, [18, 18], state=state, begin=100)
    text = shown("0/run?view=delivered")[1]
    assert "Epoch 1: under way" in text and "Epoch 0" not in text
    assert "Epoch 0: each record once" in shown("0/run?view=delivered&epoch=0")[1]


def test_the_live_part_has_only_what_changes(page, tmp_path):
    """A request from before the last receipt was read may be answered when the page asks no longer."""
    train(tmp_path / "run", write_shards(tmp_path / "data"), [1, 1])
    assert page().get("0/run?view=delivered&part=live").text.strip().startswith('<div id="delivered"')


def test_the_page_answers_while_receipts_are_read(shown, tmp_path, monkeypatch):
    train(tmp_path / "run", write_shards(tmp_path / "data"), [1, 1])
    monkeypatch.setattr(receipts, "_WAIT_S", 0.0)
    answer = threading.Event()
    monkeypatch.setattr(receipts, "receipts_in_json", lambda *_, **__: answer.wait(60) and [])
    (tmp_path / "run" / "a.json").write_text("{}")
    status, text = shown("0/run?view=delivered")
    assert status == 200 and "Reading the receipts: 0 of" in text
    answer.set()
    eventually(lambda: "Audit of 2 receipts" in shown("0/run?view=delivered")[1])


def test_a_damaged_receipt_is_an_error_of_the_page(shown, tmp_path, monkeypatch):
    train(tmp_path / "run", write_shards(tmp_path / "data"), [12, 12])
    (tmp_path / "run" / "more.json").write_text('[{"receipt_version": 4, "segments": ')
    status, text = shown("0/run?view=delivered")
    assert status == 200 and "a damaged receipt" in text
    monkeypatch.setattr(receipts, "_MOST_JSON_BYTES", 10)
    text = shown("0/run?view=delivered")[1]
    assert "more.json is too long for this page" in text and "Epoch 0: each record once" in text


def test_a_link_out_of_the_root_is_not_read(page, tmp_path):
    train(tmp_path / "other", write_shards(tmp_path / "data"), [12, 12])
    root = tmp_path / "root"
    root.mkdir()
    shutil.copytree(tmp_path / "other" / "rank-00000", root / "rank-00000")
    (root / "rank-00001").symlink_to(tmp_path / "other" / "rank-00001")
    text = page(root).get("0?view=delivered").text
    assert "rank-00001 is a link to a file elsewhere" in text and "Proved" not in text


@pytest.mark.parametrize(
    ("shuffle", "files"),
    [(False, None), ("blocks", None), ("global", None), (False, 2), ("blocks", 2)],
)
@pytest.mark.parametrize("made", [[3, 3, 3], [5, 2, 4], [7, 7, 7], [9, 9, 0]])
def test_every_record_has_one_fate(shuffle, files, made):
    found = _deliveries(made, shuffle=shuffle, cycle_length=files)
    fates = {kind: _records(found, kind) for kind in ("lost", "repeated", "waiting", "dropped")}
    once = [
        (span.shard, index, row.kind)
        for place in np.linspace(0, 1, 3)
        for row in found.at(float(place), 256)
        for span in row.spans
        for index in range(span.first, span.last + 1)
    ]
    delivered = {int(found.table.offsets[s]) + i for s, i, kind in once if kind == "once"}
    assert sorted([*delivered, *fates["lost"], *fates["waiting"]]) == list(range(40))
    assert found.audit.lost.records == len(fates["lost"]) + len(fates["waiting"])
    for kind, band in found.bands.items():
        assert band.records == len(fates[kind])
        assert [record for _, record in band.marks] == fates[kind]


def test_the_number_of_ranges_is_that_of_the_audit_and_all_are_there():
    """A rank without receipts: more ranges than an audit names."""
    found = _deliveries([1000, 0], dataset=Dataset("c0ffee", 4000), batch_size=2)
    assert found.audit.lost.ranges == found.count("lost") == 1000
    assert found.rows("lost", 999, 5)[0].ranks == "rank 1" and not found.shards
    reports = audit([json.loads(json.dumps(_receipt(rank, steps))) for rank, steps in ((0, 1000), (1, 0))])
    assert reports.epochs[0].lost.ranges == 1000 and len(reports.epochs[0].lost.first) == 64


def _receipt(rank: int, steps: int) -> dict[str, object]:
    return Receipt(
        id=f"{rank:032x}",
        rank=rank,
        world_size=2,
        batch_size=2,
        remainder="mask",
        dataset=Dataset("c0ffee", 4000),
        shuffle=False,
        seed=0,
        segments=(Segment(0, 0, steps),),
    ).to_dict()


def test_a_large_epoch_is_drawn_from_a_sample_with_every_loss():
    counts = (10_000,) * 10_000
    data = Dataset("c0ffee", 10**8, tuple(map(str, range(10_000))), counts)
    made = [20_000] * 63 + [19_999]
    begin = time.process_time()
    found = _deliveries(made, dataset=data, batch_size=64, shuffle="global")
    found.at(0.5, 32)
    found.rows("lost", 0, 50)
    assert time.process_time() - begin < 2
    assert found.picture.rows == 64 and found.bands["lost"].records == 64
    assert sum(len(row.spans) for row in found.rows("lost", 0, 50)) == 64


def test_a_mixture_is_shown_by_its_positions():
    """Of two data sets of 15 and 25 records, the first one is repeated until the second one has ended."""
    parts = (Part(15, 2, "global", 1), Part(25, 1, False, 0))
    found = _deliveries([8, 7], mixture=Mixture(parts, "repeat"))
    assert found.audit.records == 74 and found.bands["lost"].records == 2
    assert found.bands["waiting"].records == 74 - 32
    rows = found.at(0.0, 100)
    assert sum(row.count for row in rows) == 74
    assert {span.shard for row in rows for span in row.spans} == {0, 1}
    assert sum(row.count for row in rows if row.kind == "once") == 30


@pytest.mark.parametrize("limit_bytes", [4096, 10])
def test_a_merged_file_has_the_same_epochs(page, tmp_path, monkeypatch, limit_bytes):
    monkeypatch.setattr(description, "_MOST_BYTES", limit_bytes)  # with 10, the shards are described apart
    train(tmp_path / "run", write_shards(tmp_path / "data"), [9, 4])
    merge(tmp_path / "run", tmp_path / "all.h5", incomplete="allow")
    client = page()
    contents = client.get("0/all.h5").text
    assert (
        '/0/all.h5?view=delivered">Epochs as they were delivered' in contents
        and ">Delivered<" not in contents
    )
    text = client.get("0/all.h5?view=delivered").text
    assert '<strong class="bad">25</strong>' in text and "/0/data/a-0.tfrecord?view=records" in text
    with h5py.File(tmp_path / "all.h5", "a") as file:
        del file["_receipts"]
        file["_receipts"] = h5py.ExternalLink("/etc/passwd", "x")
    assert "is a link to another file" in client.get("0/all.h5?view=delivered").text

"""Every table and curve of the benchmarks runs, on tiny files, and its results can be shown."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks import curves, results
from benchmarks.environments import PEERS, installed
from benchmarks.measure import Peer, Program, Row, Side, Table, measure
from benchmarks.peer_loop import take
from benchmarks.regressions import verdict
from benchmarks.svg import bars, growth
from benchmarks.tables import TABLES, find

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("peers", "hdf5", "adapters")
# Without --slow only these tables run, and no peer that is not in this environment.
QUICK = ("raw", "columns", "shuffled", "resume", "png", "hdf5 write", "append one", "hdf5 merge", "open file")
QUICK += ("repair",)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("benchmarks")


def module(job: str) -> str:
    return job.split()[0].rpartition(".")[2]


def is_here(job: str) -> bool:
    return job.startswith(PROGRAMS) and installed(job.split()[0])


@pytest.mark.parametrize("table", [one for one in TABLES if is_here(one.ours)], ids=lambda one: one.name)
def test_each_row_runs_or_has_a_reason(table: Table, files: Path, request: pytest.FixtureRequest) -> None:
    is_slow = request.config.getoption("--slow")
    if table.name not in QUICK and not is_slow:
        pytest.skip("needs --slow")
    peers = [peer for peer in table.peers if is_slow or PEERS.keys().isdisjoint({module(peer.job)})]
    peers = [peer for peer in peers if is_here(peer.job) or not peer.job.startswith(PROGRAMS)]
    batch = min(table.batch, 64)
    part = Table(table.name, table.title, table.files, table.ours, tuple(peers), batch, table.by)
    for row in measure(part, files, rounds=1, scale=0.002):
        has_reason = not row.peer.job.startswith(PROGRAMS) or "not installed" in row.reason
        assert bool(row.reason) == has_reason or "FFmpeg" in row.reason, row.reason
        assert row.peer.label in results.line(results.to_dict(row))


@pytest.mark.parametrize("curve", curves.CURVES, ids=lambda one: one.name)
def test_each_curve_has_costs(
    curve: curves.Curve,
    files: Path,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    is_slow = request.config.getoption("--slow")
    if curve.name != "curve readers" and not is_slow:
        pytest.skip("needs --slow")
    rounds = 2 if is_slow else 1
    for name in ("JSON", "PAGE"):
        monkeypatch.setattr(results, name, tmp_path / name)
    section = curves.measure(curve, files, rounds=rounds, scale=0.002, most=2)
    results.keep(curve.name, section)
    assert section["values"] == list(curve.values[:2])
    assert all(
        len(found) == min(rounds, curve.rounds) for cost in section["costs"].values() for found in cost
    )
    page = (tmp_path / "PAGE").read_text()
    assert results.curve_line(section, 1) in page
    assert f"plots/{curve.name.replace(' ', '-')}.svg" in page
    (picture,) = (tmp_path / "plots").iterdir()
    assert ElementTree.parse(picture)


def test_each_program_and_name_exists() -> None:
    names = {one.name for one in (*TABLES, *curves.CURVES)}
    assert len(names) == len(TABLES) + len(curves.CURVES)
    programs = {job.split()[0] for table in TABLES for job in (table.ours, *(p.job for p in table.peers))}
    programs = {one for one in programs if one.startswith(PROGRAMS) and "." in one}
    missing = [one for one in programs if not (ROOT / f"benchmarks/{one.replace('.', '/')}.py").exists()]
    assert not missing
    assert set(PEERS) <= {one.rpartition(".")[2] for one in programs}
    assert [table.name for table in find("raw")] == ["raw"]
    assert len(list(find("hdf5"))) > 3
    assert [curve.axis for curve in curves.find("curve r")] == ["records", "readers"]


def test_a_job_reports_its_processor_time_and_its_memory(files: Path) -> None:
    program = Program("peers.limits")
    table = next(find("raw"))
    answers = list(measure(Table("x", "", "small", table.ours, ()), files, scale=0.002))
    assert answers == []
    paths = sorted(str(path) for path in files.glob("small-*/*.tfrecord"))
    answer = program.peak_of("read", paths, 1)
    program.close()
    assert answer["units"] >= 8
    assert answer["peak_bytes"] > 1 << 20
    assert answer["processor_s"] > 0


def test_a_peer_that_fails_has_the_reason_in_its_row(files: Path) -> None:
    peers = (Peer("broken", "peers.ours no such job"), Peer("missing", "peers.nothing raw"))
    table = Table("x", "X", "small", "peers.ours raw", peers)
    rows = list(measure(table, files, rounds=1, scale=0.002))
    assert "KeyError" in rows[0].reason
    assert "No module named benchmarks.peers.nothing" in rows[1].reason


def test_a_row_is_the_median_of_its_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table("t", "Title", "small", "peers.ours raw", (Peer("peer", "peers.tfdata raw best", 3),))
    ours = Side([1.0, 1.0, 1.0], [10, 10, 10], [1.0] * 3, 1 << 20)
    theirs = Side([2.0, 4.0, 9.0], [10, 10, 10], [2.0] * 3, 2 << 20)
    row = Row(table, table.peers[0], ours, theirs, 100.0, {"numpy": "2"})
    line = (
        "| peer | 10/s (0 MB/s) | 2.5/s (0 MB/s) | 4.00 (2.00–9.00) | 1 / 2 MiB | 100 ms / 200 ms | 3 | yes |"
    )
    assert results.line(results.to_dict(row)) == line
    monkeypatch.setattr(results, "JSON", tmp_path / "results.json")
    monkeypatch.setattr(results, "PAGE", tmp_path / "RESULTS.md")
    results.keep("t", results.table([row]))
    assert line in (tmp_path / "RESULTS.md").read_text()
    kept = json.loads((tmp_path / "results.json").read_text())
    assert kept["t"]["rows"][0]["theirs"]["seconds"] == [2.0, 4.0, 9.0]


def test_a_regression_is_not_noise() -> None:
    assert verdict([0.8, 0.81, 0.79, 0.82, 0.8, 0.78, 0.8, 0.83]) == "slower"
    assert verdict([1.3, 1.31, 1.29, 1.32, 1.3, 1.28, 1.3, 1.33]) == "faster"
    assert verdict([0.8, 1.2, 0.9, 1.1, 1.0, 1.0, 0.7, 1.3]) == "same"


def test_a_chart_has_a_bar_for_each_peer() -> None:
    chart = ElementTree.fromstring(bars("A < B", [("fast", 0.5), ("slow & old", 30.0)]))
    texts = [element.text for element in chart.iter() if element.tag.endswith("text")]
    assert {"A < B", "fast", "slow & old", "0.5", "30", "1×"} <= set(texts)
    assert sum(element.tag.endswith("rect") for element in chart.iter()) == 3


def test_a_chart_of_growth_has_a_line_for_each_cost_that_is_not_zero() -> None:
    costs = {"epoch, s": [0.5, 1.0, 50.0], "memory, MiB": [40.0, 41.0, 42.0], "none, s": [0.0, 0.0, 1.0]}
    chart = ElementTree.fromstring(growth("More < files", "files", [10, 100, 1_000], costs))
    texts = [element.text for element in chart.iter() if element.tag.endswith("text")]
    assert {
        "More < files",
        "files",
        "1,000",
        "1×",
        "100×",
        "epoch, s",
        "memory, MiB",
        "in proportion",
    } <= set(texts)
    assert "none, s" not in texts


def test_the_fastest_peers_are_those_of_large_tables_and_not_the_limits() -> None:
    rows = [
        {"peer": peer, "reason": "", "wanted": wanted, "ratios": [ratio]}
        for peer, wanted, ratio in (
            ("limit: cat", 0.7, 0.5),
            ("slow", 2, 30.0),
            ("fast", 2, 3.5),
            ("other", 0, 1),
        )
    ]
    rows.append({"peer": "missing", "reason": "no wheel"})
    chart = results.pictures(
        {"raw": {"title": "Raw", "rows": rows}, "few": {"title": "Few", "rows": rows[:3]}}
    )
    assert set(chart) == {"raw", results.SUMMARY}
    assert "Raw: fast" in chart[results.SUMMARY]
    assert "Few" not in chart[results.SUMMARY]


def test_a_slow_job_stops_after_a_part() -> None:
    assert take([[1, 2], [3], [4]], 3) == 3
    assert take([[1, 2], [3], [4]], 0) == 4

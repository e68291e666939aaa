"""Output of ``shardkeep doctor``. Covers `shardkeep.cli.diagnosis.doctor`."""

from __future__ import annotations

import pytest

from shardkeep.cli.output.doctor import doctor_page, print_doctor
from shardkeep.diagnosis import DoctorReport, Fact, Problem

PROBLEM = Problem(
    "error", "locks", "flock fails with 37 \x1b[31m", "use another folder", "df -T .", "/data/a<b"
)


def test_a_healthy_machine_takes_three_lines(capsys: pytest.CaptureFixture[str]) -> None:
    print_doctor(
        DoctorReport((), (Fact("a", "b", "c"),), paths=("data",), ranks=8, ranks_here=8, seconds=1.2)
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "checked  this machine and 1 path for 8 ranks: 1 fact in 1.2 s",
        "verdict  healthy",
        "next     shardkeep verify data, to check every record",
    ]


def test_a_problem_has_evidence_fix_and_command(capsys: pytest.CaptureFixture[str]) -> None:
    print_doctor(DoctorReport((PROBLEM,), ()))
    out = capsys.readouterr().out
    assert out.splitlines()[:4] == [
        "error  locks: /data/a<b",
        r"flock fails with 37 \x1b[31m",
        "fix: use another folder",
        "run: df -T .",
    ]
    assert "verdict  1 error" in out
    assert "\x1b" not in out


def test_the_page_escapes_what_it_shows() -> None:
    text = doctor_page(DoctorReport((PROBLEM,), (Fact("a", "<b>", "c"),)))
    assert "<code>/data/a&lt;b</code>" in text and "<h2>A</h2>" in text
    assert "<th>&lt;b&gt;</th><td>c</td>" in text
    assert 'class="verdict bad"' in text


def test_a_name_that_is_not_utf8_is_shown_escaped() -> None:
    problem = Problem("note", "a", "b", "c", path="/data/\udcff")
    assert r"\xff" in doctor_page(DoctorReport((problem,), (), paths=("/data/\udcff",))).encode().decode()


NOTE = Problem("note", "versions", "hdf5 2.0.0 refuses some files", "use 1.14")


def test_notes_and_facts_are_printed_on_demand(capsys: pytest.CaptureFixture[str]) -> None:
    report = DoctorReport((NOTE,), (Fact("memory", "overcommit", "heuristic"),))
    print_doctor(report)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[1] == "verdict  healthy (1 note with --all)"
    print_doctor(report, show_all=True)
    out = capsys.readouterr().out
    assert "memory\novercommit  heuristic" in out and "hdf5 2.0.0 refuses some files" in out

"""The report of an examination."""

import json

from shardkeep.diagnosis.examination.report import DoctorReport, Fact, Problem


def test_notes_alone_are_no_fault() -> None:
    note = Problem("note", "versions", "h5py 3.16 with HDF5 2.0", "nothing to do")
    warning = Problem("warning", "descriptors", "1,024 of 4,096 needed", "raise the limit", "ulimit -n 4096")
    assert DoctorReport((note,), ()).ok
    report = DoctorReport((warning, note), (Fact("descriptors", "soft limit", "1,024"),))
    assert not report.ok
    assert json.loads(json.dumps(report.to_dict()))["problems"][0]["command"] == "ulimit -n 4096"

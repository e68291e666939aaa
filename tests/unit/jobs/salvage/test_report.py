"""The report of a repair."""

import json

from shardkeep.jobs.salvage.report import RepairedFile, RepairedPart, RepairReport


def test_a_report_is_ok_unless_something_is_lost() -> None:
    kept = RepairedPart("kept", "records 0 to 9", items=10, offset_bytes=0, bytes=160, record=0)
    repaired = RepairedPart("repaired", "bit 1 of byte 2 of the payload was flipped", items=1, record=10)
    lost = RepairedPart("lost", "512 bytes without a recognisable record", offset_bytes=176, bytes=512)
    corrected = RepairedFile("a", "b", "tfrecord", 176, (kept, repaired))
    cut = RepairedFile("c", "d", "tfrecord", 688, (kept, repaired, lost))
    assert corrected.ok and not cut.ok
    assert [cut.items(one) for one in ("kept", "repaired", "unchecked", "lost")] == [10, 1, 0, 0]
    assert RepairReport("a", "b", False, (corrected,)).ok
    report = RepairReport("folder", "out", False, (corrected, cut), intact=3)
    assert not report.ok
    assert json.loads(json.dumps(report.to_dict()))["files"][1]["parts"][2]["bytes"] == 512

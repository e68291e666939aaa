"""The report of a repair."""

import json

from shardkeep.jobs.salvage.report import MOST_PARTS, RepairedFile, RepairedPart, RepairReport, shortened


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


def test_the_end_of_a_long_report_has_a_part_for_each_outcome() -> None:
    kept = [RepairedPart("kept", "whole records", items=2, offset_bytes=10 * i, bytes=10) for i in range(3)]
    lost = RepairedPart("lost", "NUL bytes", offset_bytes=30)
    first = [RepairedPart("lost", "one damaged record")] * MOST_PARTS
    assert shortened(first) == first
    assert shortened([*first, kept[0], lost, *kept[1:]]) == [
        *first,
        RepairedPart("kept", "the sums of 3 more ranges", items=6, offset_bytes=0, bytes=30),
        RepairedPart("lost", "the sums of 1 more ranges", offset_bytes=30),
    ]

from __future__ import annotations

from dataclasses import replace

from shardkeep.hdf5.segments.commit_record import CommitRecord, DatasetRecord
from shardkeep.jobs.salvage.series import Segment, choose_series

RUN = "run"


def _chain(name, commits, rank=0, size=1, start=None, created=0.0):
    """Return segments of 10 rows each under their right names; `start` is the segment before them."""
    result = []
    before = start
    for _ in range(commits):
        sequence = 0 if before is None else before.record.sequence + 1
        record = CommitRecord(
            rank, size, sequence, 10 * sequence, name, "host", 1, created + sequence,
            {"x": DatasetRecord(10 * sequence, 10, "00000000")},
            previous=None if before is None else before.record.crc32c,
            crc32c=f"{name}{sequence}",
        )  # fmt: skip
        before = _placed(record)
        result.append(before)
    return result


def _placed(record, size_bytes=100):
    segment = Segment("", size_bytes, record)
    return replace(segment, path=segment.path_in(RUN))


def _moved(segment, path):
    return replace(segment, path=f"{RUN}/{path}")


def test_a_whole_run_is_used_as_it_is():
    segments = [*_chain("a", 3, 1, 2), *_chain("b", 3, 0, 2)]
    series = choose_series(RUN, segments)
    assert list(series.segments) == segments[3:] + segments[:3]
    assert not series.unused and not series.findings("out")


def test_the_longer_chain_counts_wherever_the_other_begins():
    ours, other = _chain("a", 5), _chain("b", 5)
    for number in range(5):
        mixed = [*ours[:number], other[number], *ours[number + 1 :]]
        series = choose_series(RUN, mixed)
        assert list(series.segments) == ours[:number] + ours[number + 1 :]
        assert list(series.unused) == [other[number].path]
        assert "of another run" in series.unused[other[number].path]


def test_a_commit_that_was_rolled_back_and_copied_back_is_not_used():
    ours = _chain("a", 3)
    old = replace(_chain("b", 1, start=ours[-1])[0].record, step=25)
    newer = _chain("c", 1, start=ours[-1], created=100.0)
    series = choose_series(RUN, [*ours, _placed(old), *newer])
    assert list(series.segments) == [*ours, *newer]
    # Also if the old one has successors, which the newer one has not: they are fewer than all others.
    older = [_placed(old), *_chain("b", 1, start=_placed(old))]
    after = _chain("c", 2, start=newer[0], created=100.0)
    series = choose_series(RUN, [*ours, *older, *newer, *after])
    assert list(series.segments) == [*ours, *newer, *after]


def test_segments_under_other_names_are_found_by_their_records():
    ours = _chain("a", 4)
    moved = [_moved(ours[1], "rank-00007/00000009-step-5.h5"), _moved(ours[2], "rank-00000/old.bak")]
    series = choose_series(RUN, [ours[0], *moved, ours[3]])
    assert [one.record.sequence for one in series.segments] == [0, 1, 2, 3] and not series.unused


def test_a_segment_moved_aside_after_the_newest_is_not_used():
    ours = _chain("a", 4)
    series = choose_series(RUN, [*ours[:3], _moved(ours[3], "rank-00000/old.bak")])
    assert [one.record.sequence for one in series.segments] == [0, 1, 2]
    assert "no later commit proves that it counts" in series.unused[f"{RUN}/rank-00000/old.bak"]


def test_segments_of_another_run_under_other_names_are_not_used():
    other = _moved(_chain("b", 1, rank=5, size=9)[0], "rank-00000/00000003-step-5.h5")
    series = choose_series(RUN, [*_chain("a", 3), other])
    assert len(series.segments) == 3
    assert (
        "nothing proves that it is of this run; if it is, its name is rank-00005" in series.unused[other.path]
    )


def test_two_segments_under_each_others_names():
    one, other = _chain("a", 1, 0, 2)[0], _chain("b", 1, 1, 2)[0]
    exchanged = [replace(one, path=other.path), replace(other, path=one.path)]
    series = choose_series(RUN, exchanged)
    assert [segment.record.rank for segment in series.segments] == [0, 1] and not series.unused


def test_copies_are_used_once():
    ours = _chain("a", 3)
    series = choose_series(RUN, [*ours, _moved(ours[1], "rank-00000/00000001-step-10 (1).h5")])
    assert list(series.segments) == ours
    assert list(series.unused.values()) == ["it is a copy of rank-00000/00000001-step-10.h5"]


def test_records_without_checksums():
    old = [_placed(replace(one.record, previous=None, crc32c=None)) for one in _chain("a", 4)]
    series = choose_series(RUN, [old[0], *old[2:]])
    assert list(series.segments) == [old[0], *old[2:]]
    findings = [one.split(" in ")[0] for one in series.findings("out")]
    assert findings == ["commit 1 of rank 0 is missing (10 rows of 'x')"]


def test_many_segments():
    segments = _chain("a", 3000)
    assert len(choose_series(RUN, segments[::2]).segments) == 1500

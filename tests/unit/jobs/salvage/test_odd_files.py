"""Verdict and number of salvaged records of every odd file.

Covers `shardkeep.jobs.salvage.job`, `shardkeep.jobs.verify`.
"""

from pathlib import Path

import pytest

import shardkeep as sk
from shardkeep.cli.app import run
from shardkeep.errors import FormatError, TruncatedFileError
from shardkeep.tfrecord import Reader
from tests.odd_files import RECORDS, OddFile, odd_files

ODD = [one for one in odd_files() if one.error is not FormatError and one.name != "empty"]
FOREIGN = [one for one in odd_files() if one.error is FormatError and not one.name.startswith("hdf5")]
# Where they are not those before the damage.
SALVAGED = {
    "bit_flip_in_data": 10,
    "bit_flip_in_length": 10,
    "bit_flip_in_header_crc": 10,
    "bit_flip_in_footer": 10,
    "first_header_damaged": 10,
    "first_block_overwritten": 7,
    "first_block_nul": 7,
    "nul_hole": 7,
    "sparse_hole": 5,
    "nul_gap": 20,
    "block_repeated": 11,
    "block_missing": 7,
    "byte_inserted": 9,
    "byte_removed": 9,
    "two_appenders": 40,
    "gzip_then_plain": 20,
    "zlib_then_gzip": 20,
    "gzip_bit_flip_in_a_record": 10,
}
# Damaged files of which every record is kept, and nothing else was in them.
NOTHING_LOST = {
    "two_appenders",
    "bit_flip_in_data",
    "bit_flip_in_length",
    "bit_flip_in_header_crc",
    "bit_flip_in_footer",
    "first_header_damaged",
    "gzip_no_trailer",
    "gzip_trailer_cut",
    "zlib_no_trailer",
    "zlib_second_stream_cut",
    "gzip_then_plain",
    "zlib_then_gzip",
    "gzip_bad_crc",
    "gzip_bad_size",
    "zlib_bad_adler",
    "gzip_bit_flip_in_a_record",
}


@pytest.mark.parametrize("odd", ODD, ids=[one.name for one in ODD])
def test_verdict_and_number_of_salvaged_records(odd: OddFile, tmp_path: Path) -> None:
    path, output = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    path.write_bytes(odd.data)
    verdict = sk.verify(path)
    assert verdict.ok == (odd.error is None)
    report = sk.repair(path, output)
    assert path.read_bytes() == odd.data
    records = list(Reader(output)) if output.exists() else []
    assert len(records) == SALVAGED.get(odd.name, len(odd.delivered))
    assert set(records) <= {*odd.delivered, *(odd.records or RECORDS), *RECORDS, b"B" * 301}
    assert report.ok == (odd.error is None or odd.name in NOTHING_LOST)
    if odd.error is None:
        assert output.read_bytes() == odd.data
    else:
        assert any(part.outcome != "kept" for file in report.files for part in file.parts)
        (command,) = {finding.next for finding in verdict.findings}
        assert command == f"shardkeep repair {path} {tmp_path}/a.repaired.tfrecord"
    if records:
        assert sk.verify(output).ok


@pytest.mark.parametrize("odd", FOREIGN, ids=[one.name for one in FOREIGN])
def test_a_file_of_another_kind_is_named_with_advice(odd: OddFile, tmp_path: Path) -> None:
    path, output = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    path.write_bytes(odd.data)
    assert not sk.verify(path).ok
    with pytest.raises(FormatError) as caught:
        sk.repair(path, output)
    assert odd.said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not output.exists()


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.touch()
    assert [finding.kind for finding in sk.verify(path).findings] == ["empty"]
    with pytest.raises(TruncatedFileError, match="write or fetch it again"):
        sk.repair(path, tmp_path / "b.tfrecord")


@pytest.mark.parametrize(("name", "advice"), [("git_lfs_pointer", "git lfs pull"), ("html", "fetch")])
def test_the_command_says_what_to_do(
    name: str, advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(next(one.data for one in FOREIGN if one.name == name))
    assert run(["repair", str(path), str(tmp_path / "b.tfrecord")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert advice in line

"""Odd files read in every way: iteration, random access, index, loader and command.

Covers `shardkeep.tfrecord.reader` and `shardkeep.tfrecord.index.index`.
"""

from __future__ import annotations

import errno
import gzip
import os
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import shardkeep as sk
from shardkeep.cli.app import run
from shardkeep.errors import CorruptDataError, FormatError, NotFoundError, ShardkeepError
from shardkeep.files.kinds.kind import identify, identify_bytes
from shardkeep.tfrecord import Reader, build_index
from tests.odd_files import FRAME_BYTES, RECORDS, OddFile, frame, odd_files
from tests.waiting import PATIENCE_S

CASES = odd_files()

every = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])


def write(folder: Path, case: OddFile) -> Path:
    path = folder / f"{case.name}.tfrecord"
    path.write_bytes(case.data)
    return path


def drain(records: Iterator[bytes]) -> tuple[list[bytes], Exception | None]:
    got: list[bytes] = []
    try:
        got.extend(records)
    except ShardkeepError as error:
        return got, error
    return got, None


def read(path: Path) -> tuple[list[bytes], Exception | None]:
    try:
        return drain(iter(Reader(path)))
    except ShardkeepError as error:
        return [], error


def check_error(error: Exception | None, case: OddFile, path: Path) -> None:
    assert type(error) is (case.error or type(None)), error
    if error is None:
        return
    assert isinstance(error, ShardkeepError)
    assert str(error).startswith(str(path)) and str(error).isprintable()
    assert case.said in str(error)
    assert error.path == str(path)
    assert (error.record, error.offset_bytes) == (case.record, case.offset_bytes)
    if isinstance(error, FormatError):
        assert "expected a TFRecord file, found " in str(error)


def is_packed(case: OddFile) -> bool:
    return case.name.startswith(("gzip", "zlib", "two_zlib"))


def test_the_cases_are_many_and_differ() -> None:
    assert len(CASES) > 170
    assert len({case.name for case in CASES}) == len({case.data for case in CASES}) == len(CASES)
    assert all(case.story for case in CASES)


@every
def test_iteration_yields_the_expected_records_and_error(case: OddFile, tmp_path: Path) -> None:
    path = write(tmp_path, case)
    got, error = read(path)
    assert got == case.delivered
    check_error(error, case, path)


@every
def test_without_verification_errors_are_still_typed(case: OddFile, tmp_path: Path) -> None:
    path = write(tmp_path, case)
    try:
        got, error = drain(iter(Reader(path, verify=False)))
    except ShardkeepError as failed:
        got, error = [], failed
    assert sum(map(len, got)) <= 1032 * len(case.data)
    assert error is None or (str(error).isprintable() and error.__cause__ is None)


@every
def test_index_agrees_with_iteration(case: OddFile, tmp_path: Path) -> None:
    path = write(tmp_path, case)
    if is_packed(case):
        with pytest.raises((FormatError, CorruptDataError)) as caught:
            build_index(path, verify=True)
        assert str(caught.value).isprintable()
        assert case.error is not None or "-compressed as a whole" in str(caught.value)
        return
    try:
        index, error = build_index(path, verify=True), None
    except ShardkeepError as failed:
        index, error = None, failed
    check_error(error, case, path)
    if index is not None:
        assert index.lengths.tolist() == list(map(len, case.delivered))


@every
def test_random_access_returns_correct_bytes_or_raises(case: OddFile, tmp_path: Path) -> None:
    path = write(tmp_path, case)
    try:
        reader = Reader(path)
        count = len(reader)
    except ShardkeepError as error:
        assert case.error is not None
        assert str(error).isprintable()
        return
    right, failed = 0, 0
    for number in range(count):
        try:
            record = reader[number]
        except ShardkeepError:
            failed += 1
            continue
        right += 1
        if number < len(case.delivered):
            assert record == case.delivered[number]
        else:
            assert record in [*RECORDS, b"A" * 300], "damage was read as data"
    if case.error is None and not is_packed(case):
        assert (right, failed) == (case.whole, 0)
    if case.error is not None:
        assert failed


@every
def test_loader_agrees_with_iteration(case: OddFile, tmp_path: Path) -> None:
    path = write(tmp_path, case)
    got: list[bytes] = []
    try:
        for batch in sk.Loader(path, batch_size=1, world=sk.World(0, 1), threads=1):
            got.extend(bytes(batch["record"][i]) for i in range(1) if batch["valid"][i])
    except ShardkeepError as error:
        assert case.error is not None or is_packed(case)
        assert str(error).isprintable() and error.path == str(path)
        # A wrong header is found before the first batch, a wrong payload when its batch is read.
        assert got in ([], case.delivered)
        return
    assert case.error is None and got == case.delivered


@pytest.mark.parametrize("command", ["info", "cat"])
@every
def test_cat_agrees_with_iteration(
    case: OddFile, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, case)
    code = run([command, str(path)])
    out, err = capsys.readouterr()
    if case.name.startswith("hdf5"):
        assert code == 3 and "Traceback" not in err
        return
    # Without any whole record the file is taken for one of another kind.
    is_foreign = case.error is FormatError or case.name.startswith(("ff_only", "damaged_length_"))
    assert code == (0 if case.error is None else 2 if is_foreign else 3)
    assert err.count("\n") == (0 if case.error is None else 1)
    assert all(line.isprintable() for line in (out + err).splitlines())
    if case.error is FormatError:
        assert case.said in err


# -- exhaustively ---------------------------------------------------------------------------------------

SMALL = [b"abc", b"", b"line\n"]
PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "plain": lambda data: data,
    "gzip": lambda data: gzip.compress(data, mtime=0),
    "zlib": zlib.compress,
}


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_small_file_cut_at_every_byte(packing: str, tmp_path: Path) -> None:
    whole = PACKINGS[packing](b"".join(map(frame, SMALL)))
    ends = {sum(len(frame(r)) for r in SMALL[:n]): n for n in range(4)} if packing == "plain" else {0: 0}
    path = tmp_path / "cut.tfrecord"
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        got, error = read(path)
        assert got == SMALL[: len(got)]
        if cut in ends:
            assert error is None and len(got) == ends[cut], cut
        elif whole[:cut] != b"x":  # which is what zlib data begins with, and text
            assert type(error).__name__ == "TruncatedFileError", (cut, error)


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_small_file_with_every_bit_flipped(packing: str, tmp_path: Path) -> None:
    whole = PACKINGS[packing](b"".join(map(frame, SMALL)))
    path = tmp_path / "flip.tfrecord"
    silent = []
    for bit in range(8 * len(whole)):
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        got, error = read(path)
        assert got == SMALL[: len(got)], f"bit {bit} changes what is read"
        assert error is None or str(error).isprintable()
        if error is None:
            assert got == SMALL
            silent.append(bit // 8)
        elif packing == "plain":
            assert isinstance(error, CorruptDataError | FormatError)
    # Only what means nothing: flags, time and system of a gzip header, and the bits that fill the last byte
    # of the deflate data before the trailer.
    meaningless = {"plain": set(), "gzip": {*range(3, 10), len(whole) - 9}, "zlib": {len(whole) - 5}}
    assert set(silent) <= meaningless[packing]


# -- files that are not regular ---------------------------------------------------------------------------


def test_reader_refuses_a_pipe_without_blocking(tmp_path: Path) -> None:
    path = tmp_path / "pipe.tfrecord"
    os.mkfifo(path)
    with pytest.raises(FormatError, match="named pipe; pass a regular file"):
        Reader(path)
    assert run(["info", str(path)]) == 2


@pytest.mark.parametrize("call", ["sk.tfrecord.build_index(path)", "sk.Loader(path, world=sk.World(0, 1))"])
def test_scan_refuses_a_pipe_without_blocking(call: str, tmp_path: Path) -> None:
    path = tmp_path / "pipe.tfrecord"
    os.mkfifo(path)
    code = (
        "import sys, shardkeep as sk\nfrom shardkeep.errors import FormatError\npath = sys.argv[1]\n"
        f"try:\n    {call}\nexcept FormatError:\n    print('ok')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.stdout == "ok\n", done.stderr


def test_device_is_refused() -> None:
    with pytest.raises(FormatError, match="a device"):
        Reader("/dev/zero")


def test_a_device_has_no_index() -> None:
    with pytest.raises(FormatError, match="a device"):
        build_index("/dev/zero")


def test_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="found a folder; pass the files in it"):
        Reader(tmp_path)


def test_a_folder_has_no_index(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="found a folder"):
        build_index(tmp_path)


def test_broken_link_is_not_found(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(OSError, match=os.strerror(errno.ELOOP)):
        Reader(loop)
    dangling = tmp_path / "x.tfrecord"
    dangling.symlink_to("../.git/annex/objects/aa/SHA256E-s1--0")
    with pytest.raises(NotFoundError, match=r"annex/objects.*git annex get"):
        Reader(dangling)
    with pytest.raises(NotFoundError, match="an empty name"):
        Reader("")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_file_without_read_permission_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frame(b"a"))
    path.chmod(stat.S_IWUSR)
    with pytest.raises(PermissionError):
        Reader(path)


@pytest.mark.parametrize(
    "name", ["new\nline", "tab\t\x1b[31mred", os.fsdecode(b"latin-\xe9"), "right-to-left \u202e", "größe ✓"]
)
@pytest.mark.parametrize("content", [b"<html>", frame(b"x" * 9)[:-1], frame(b"x" * 9) + bytes(12)])
def test_message_is_one_line_for_any_file_name(
    name: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{name}.tfrecord"
    path.write_bytes(content)
    _, error = read(path)
    assert isinstance(error, ShardkeepError)
    assert str(error).isprintable() and error.path == str(path)
    str(error).encode()
    expected = 2 if isinstance(error, FormatError) else 3
    assert run(["info", str(path)]) == expected
    assert capsys.readouterr().err.count("\n") == 1
    assert run(["cat", str(path)]) == expected
    with pytest.raises(ShardkeepError) as caught:
        build_index(path, verify=True)
    assert str(caught.value).isprintable() and caught.value.path == str(path)


def test_identify_returns_printable_text() -> None:
    for case in CASES:
        kind = identify_bytes(case.data[:4096])
        assert kind.described.isprintable() and kind.advice.isprintable()


def test_common_files_have_advice(tmp_path: Path) -> None:
    wanted = {
        "git_lfs_pointer",
        "html",
        "s3_error",
        "zip",
        "tar",
        "crlf_in_the_header",
        "unmasked",
        "nul_only",
    }
    for case in CASES:
        if case.name in wanted:
            assert identify(write(tmp_path, case)).advice, case.name
            wanted.remove(case.name)
    assert not wanted


def test_frame_helper_follows_the_format() -> None:
    assert {len(frame(record)) for record in RECORDS} == {FRAME_BYTES}

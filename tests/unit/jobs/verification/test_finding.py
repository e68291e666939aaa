from __future__ import annotations

import errno
import os
import shutil
import subprocess

import pytest

from shardkeep._paths_in_messages import as_argument
from shardkeep.errors import (
    CorruptDataError,
    CorruptRecordError,
    FormatError,
    LockTimeoutError,
    NotFoundError,
    TruncatedFileError,
)
from shardkeep.jobs.verification.finding import Finding, finding_of

_REPAIR = "shardkeep repair 'a b' 'a b.repaired'"


@pytest.mark.parametrize(
    ("error", "kind", "command"),
    [
        (CorruptRecordError("a b: record 3", path="a b", record=3, offset_bytes=70), "damage", _REPAIR),
        (CorruptDataError("damaged"), "damage", _REPAIR),
        (TruncatedFileError("cut"), "truncated", _REPAIR),
        (FormatError("a pointer; run `git lfs pull`"), "replaced", "git lfs pull"),
        (LockTimeoutError("held"), "locked", "shardkeep verify 'a b'"),
        (NotFoundError("a dangling link"), "missing", "ls -ld 'a b'"),
        (OSError(errno.EIO, os.strerror(errno.EIO)), "unreadable", "ls -ld 'a b'"),
    ],
)
def test_errors_are_findings(error: Exception, kind: str, command: str | None) -> None:
    found = finding_of(error, "a b")
    assert (found.kind, found.path, found.next) == (kind, "a b", command)
    assert "a b" in found.message and str(found) == found.message
    assert found.record == getattr(error, "record", None)
    assert found.offset_bytes == getattr(error, "offset_bytes", None)


def test_message_of_the_system_has_no_number() -> None:
    found = finding_of(OSError(errno.EIO, "Input/output error"), "a")
    assert found == Finding("unreadable", "a: Input/output error", "a", next="ls -ld a")


@pytest.mark.parametrize(
    "path", ["a", "a b", "-a", "--json", "a'b", "$(x)", "é", "a\nb", "a\t'é\\", "\udcff\udce9b"]
)
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash, whose quotes may have escapes")
def test_paths_are_one_argument_for_a_shell(path: str) -> None:
    argument = as_argument(path)
    assert argument.isprintable() and not argument.startswith("-")
    printed = subprocess.run(["bash", "-c", f"printf %s {argument}"], stdout=subprocess.PIPE, check=True)
    assert os.path.normpath(os.fsdecode(printed.stdout)) == path

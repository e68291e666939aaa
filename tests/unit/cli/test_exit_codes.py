from __future__ import annotations

import pickle

from shardkeep.cli import ExitCode


def test_the_codes_that_scripts_rely_on() -> None:
    assert {code.name: code.value for code in ExitCode} == {
        "CLEAN": 0,
        "BUG": 1,
        "USAGE": 2,
        "FINDINGS": 3,
        "NOT_FOUND": 10,
        "LOCKED": 11,
        "HANGUP": 129,
        "INTERRUPTED": 130,
        "TERMINATED": 143,
    }


def test_each_has_a_meaning_and_pickles() -> None:
    for code in ExitCode:
        assert code.meaning
        assert pickle.loads(pickle.dumps(code)) is code

"""The option ``incomplete``."""

import pytest

from shardkeep.errors import NotFoundError, PlanError
from shardkeep.files.incomplete import check_incomplete, report_incomplete


def test_each_value_of_the_option_has_its_effect() -> None:
    def report(incomplete: str) -> None:
        check_incomplete(incomplete)
        report_incomplete("2 of 8 are missing", incomplete, NotFoundError, path="x", advice="copy them")  # type: ignore[arg-type]

    with pytest.raises(NotFoundError, match='2 of 8 are missing: copy them, or allow incomplete="warn"'):
        report("refuse")
    with pytest.warns(RuntimeWarning, match="2 of 8 are missing"):
        report("warn")
    report("allow")
    with pytest.raises(PlanError, match='incomplete=None is not valid: use "refuse", "warn" or "allow"'):
        report(None)  # type: ignore[arg-type]

"""Treatment of inputs that are not complete: the option ``incomplete`` of every function that has one."""

from __future__ import annotations

from typing import Literal, get_args

from shardkeep.errors import PlanError, ShardkeepError
from shardkeep.files.user_warning import warn_user

__all__ = ["Incomplete", "check_incomplete", "report_incomplete"]

Incomplete = Literal["refuse", "warn", "allow"]


def check_incomplete(incomplete: object) -> None:
    """Raise a `PlanError` unless `incomplete` is a value of the option."""
    if incomplete not in get_args(Incomplete):
        raise PlanError(f'incomplete={incomplete!r} is not valid: use "refuse", "warn" or "allow"')


def report_incomplete(
    message: str, incomplete: Incomplete, error: type[ShardkeepError], *, path: str, advice: str
) -> None:
    """Raise an error with the advice, issue a `RuntimeWarning`, or do nothing, as `incomplete` says."""
    if incomplete == "refuse":
        raise error(f'{message}: {advice}, or allow incomplete="warn"', path=path)
    if incomplete == "warn":
        warn_user(message)

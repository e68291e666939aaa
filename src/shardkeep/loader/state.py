"""State of a loader as JSON: its position, equal on every rank and valid for any number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardkeep.errors import PlanError
from shardkeep.plan.file_assignment import HistoryEntry
from shardkeep.plan.order import ORDER_VERSION
from shardkeep.plan.proof.contents import history_from_lists, history_to_lists

__all__ = ["STATE_VERSION", "make_state", "read_state"]

STATE_VERSION = 1


def make_state(
    *, epoch: int, position: int, history: tuple[HistoryEntry, ...], basis: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the state of a position.

    Parameters
    ----------
    epoch : int
    position : int
        Number of records of the epoch that all ranks together have delivered.
    history : tuple of HistoryEntry
        Steps of the epoch so far, if ranks read whole files; four numbers for each assignment.
    basis : mapping
        Values that the loader that loads the state must share: data set, order and seed.
    """
    return {
        "version": STATE_VERSION,
        "order": ORDER_VERSION,
        "epoch": epoch,
        "position": position,
        **({"history": history_to_lists(history)} if history else {}),
        **basis,
    }


def read_state(state: object, *, basis: Mapping[str, Any]) -> tuple[int, int, tuple[HistoryEntry, ...]]:
    """Return (epoch, position, history) of a state.

    Raises
    ------
    PlanError
        `state` is not a state, has another version, or belongs to another data set, order or seed; the
        message has the difference.
    """
    if not isinstance(state, Mapping):
        raise PlanError(f"state must be a dict from state_dict(), not {type(state).__name__}")
    for key in ("version", "order", "epoch", "position", *basis):
        if key not in state:
            raise PlanError(f"the state has no {key!r}; pass a dict from state_dict()")
    if state["version"] != STATE_VERSION or state["order"] != ORDER_VERSION:
        raise PlanError(
            f"the state has version {state['version']!r}.{state['order']!r}, but this Shardkeep reads"
            f" {STATE_VERSION}.{ORDER_VERSION}; resume with the version of Shardkeep that wrote it"
        )
    if state["dataset"] != basis["dataset"]:
        raise PlanError(f"the state belongs to another data set: {_difference(state, basis)}")
    for key, mine in basis.items():
        if state[key] != mine:
            raise PlanError(
                f"the state does not fit this loader: it has {key}={state[key]!r:.80}, and the loader has"
                f" {mine!r:.80}; make the loader with the {key} of the state"
            )
    epoch, position = state["epoch"], state["position"]
    for name, value in (("epoch", epoch), ("position", position)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise PlanError(f"the state has {name}={value!r}, which must be an int of at least 0")
    if position > basis["records"]:
        raise PlanError(f"the state has position={position}, but the data set has {basis['records']} records")
    return epoch, position, history_from_lists(state.get("history", []), "the state's history")


def _difference(state: Mapping[str, Any], basis: Mapping[str, Any]) -> str:
    then, now = (f"{one['shards']} shards, {one['records']} records" for one in (state, basis))
    if then != now:
        return f"it had {then}, this one has {now}; resume on the same shards"
    if state["members"] == basis["members"]:
        return "it had the same shards in another order; pass the paths in that order"
    return (
        f"it had as many shards and records ({now}), but a shard was renamed, or rewritten with records of"
        " other lengths; resume on the same shards"
    )

"""A loader's place in its run, as JSON: the same on every rank and for any number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shardkeep.errors import PlanError
from shardkeep.plan.division import Leg
from shardkeep.plan.order import ORDER_VERSION
from shardkeep.plan.receipt import legs_from_lists, legs_to_lists

__all__ = ["STATE_VERSION", "make_state", "read_state"]

STATE_VERSION = 1


def make_state(
    *, epoch: int, position: int, history: tuple[Leg, ...], basis: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a state: the place, and what the place refers to.

    Parameters
    ----------
    epoch : int
    position : int
        Records of the epoch that all ranks together have delivered.
    history : tuple of Leg
        How the epoch came there, where ranks read whole files: four numbers for each division so far.
    basis : mapping
        What must be the same for the place to mean the same: data set, order and seed.
    """
    return {
        "version": STATE_VERSION,
        "order": ORDER_VERSION,
        "epoch": epoch,
        "position": position,
        **({"history": legs_to_lists(history)} if history else {}),
        **basis,
    }


def read_state(state: object, *, basis: Mapping[str, Any]) -> tuple[int, int, tuple[Leg, ...]]:
    """Return (epoch, position, history) of a state.

    Raises
    ------
    PlanError
        It is no state, of a newer version, or of another data set, order or seed; the message says what
        differs.
    """
    if not isinstance(state, Mapping):
        raise PlanError(f"a loader's state is a dict, as state_dict() gives it, not {type(state).__name__}")
    for key in ("version", "order", "epoch", "position", *basis):
        if key not in state:
            raise PlanError(f"the state has no {key!r}: it is not one that state_dict() gave")
    if state["version"] != STATE_VERSION or state["order"] != ORDER_VERSION:
        raise PlanError(
            f"the state has version {state['version']!r}.{state['order']!r}, this Shardkeep reads"
            f" {STATE_VERSION}.{ORDER_VERSION}; resume with the Shardkeep that wrote it"
        )
    if state["dataset"] != basis["dataset"]:
        raise PlanError(f"the state is of another data set: {_what_changed(state, basis)}")
    for key, mine in basis.items():
        if state[key] != mine:
            raise PlanError(
                f"the state does not fit this loader: {key} was {state[key]!r:.80} then and is {mine!r:.80}"
                f" now; make the loader with the {key} of the state"
            )
    epoch, position = state["epoch"], state["position"]
    for name, value in (("epoch", epoch), ("position", position)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise PlanError(f"the state has {name}={value!r}, which is no number from 0 on")
    if position > basis["records"]:
        raise PlanError(f"the state has position={position}, but the data set has {basis['records']} records")
    return epoch, position, legs_from_lists(state.get("history", []), "the state's history")


def _what_changed(state: Mapping[str, Any], basis: Mapping[str, Any]) -> str:
    then, now = (f"{one['shards']} shards, {one['records']} records" for one in (state, basis))
    if then != now:
        return f"{then} then and {now} now; resume on the same shards"
    if state["members"] == basis["members"]:
        return "it has the same shards in another order; give their paths in the order of then"
    return (
        f"as many shards and records ({now}), but a shard was renamed, or rewritten with records of other"
        " lengths; resume on the same shards"
    )

from __future__ import annotations

import sys

import pytest

from shardkeep import engine
from shardkeep.errors import EngineError, MissingExtraError, PlanError


def test_local_needs_no_executor() -> None:
    with engine("local") as executor:
        assert executor is None


def test_other_names_and_addresses_are_refused() -> None:
    with pytest.raises(PlanError, match="local, dask, ray, mpi, not 'spark'"), engine("spark"):  # type: ignore[arg-type]
        pass
    for name in ("local", "mpi"):
        with pytest.raises(PlanError, match="address='a' is not valid"), engine(name, address="a"):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("dask", "distributed", "dask"), ("ray", "ray", "ray"), ("mpi", "mpi4py", "mpi")],
)
def test_a_missing_package_is_named_with_its_extra(
    name: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"shardkeep\[{extra}\]"), engine(name):  # type: ignore[arg-type]
        pass


def test_a_scheduler_that_is_not_there_is_an_error_with_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    class Module:
        __version__ = "2026.1"

        @staticmethod
        def Client(**options: object) -> None:
            raise OSError(f"timed out:\n{options['address']}")

    monkeypatch.setitem(sys.modules, "distributed", Module)  # type: ignore[arg-type]
    with (
        pytest.raises(
            EngineError, match=r"^cannot reach a Dask scheduler at tcp://n1:8786 \(OSError: timed out:"
        ),
        engine("dask", address="tcp://n1:8786"),
    ):
        pass

"""Optional packages, imported when they are used."""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import sys
from typing import Any, NamedTuple

from shardkeep.errors import MissingExtraError

__all__ = ["EXTRAS", "import_extra"]


class _Extra(NamedTuple):
    package: str
    extra: str
    minimum: str


# By the name that is imported. A test compares them with pyproject.toml.
EXTRAS = {
    "PIL": _Extra("pillow", "demo", "10"),
    "datasets": _Extra("datasets", "huggingface", "3.0"),
    "distributed": _Extra("distributed", "dask", "2024.1"),
    "fsspec": _Extra("fsspec", "remote", "2024.6"),
    "grain": _Extra("grain", "grain", "0.2.12"),
    "hdf5plugin": _Extra("hdf5plugin", "compression", "4.2"),
    "jax": _Extra("jax", "jax", "0.4.34"),
    "jinja2": _Extra("jinja2", "viewer", "3.1"),
    "keras": _Extra("keras", "keras", "3.8"),
    "mpi4py": _Extra("mpi4py", "mpi", "4.0"),
    "obstore": _Extra("obstore", "remote", "0.9"),
    "prometheus_client": _Extra("prometheus-client", "metrics", "0.20"),
    "pyarrow": _Extra("pyarrow", "arrow", "14"),
    "ray": _Extra("ray", "ray", "2.44"),
    "s3fs": _Extra("s3fs", "remote", "2024.6"),
    "sklearn": _Extra("scikit-learn", "demo", "1.3"),
    "starlette": _Extra("starlette", "viewer", "0.41"),
    "tensorflow": _Extra("tensorflow", "tensorflow", "2.15"),
    "torch": _Extra("torch", "torch", "2.2"),
    "uvicorn": _Extra("uvicorn", "viewer", "0.30"),
    "zmq": _Extra("pyzmq", "collector", "25"),
}


def import_extra(name: str, use: str, path: str | None = None) -> Any:
    """Import an optional package, or one of its modules.

    Parameters
    ----------
    name : str
        Dotted name of the module; its first part is one of `EXTRAS`.
    use : str
        Subject of the error: what needs the package.
    path : str, optional
        File of the error.

    Returns
    -------
    module

    Raises
    ------
    MissingExtraError
        The package is not installed, is too old, or cannot be imported; the reason and the command that
        installs it are in the message.
    """
    top = name.partition(".")[0]
    package, extra, minimum = EXTRAS[top]
    try:
        importlib.import_module(top)
        module = importlib.import_module(name)
    # A package that was built for another NumPy also raises AttributeError and others.
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and error.name == top:
            message = f"{use} needs {package}, which is not installed: pip install 'shardkeep[{extra}]'"
            raise MissingExtraError(message, path=path) from None
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise MissingExtraError(
            f"{use} needs {package}, which is installed but cannot be imported ({reason:.300}): correct that,"
            f" or pip install --force-reinstall {package}",
            path=path,
        ) from error
    version = getattr(sys.modules[top], "__version__", None) or _metadata_version(package)
    if version is not None and _is_older(version, minimum):
        raise MissingExtraError(
            f"{use} needs {package} {minimum} or later, not {version}:"
            f" pip install --upgrade 'shardkeep[{extra}]'",
            path=path,
        )
    return module


def _metadata_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.lru_cache  # an import in a function may run for each message
def _is_older(version: str, minimum: str) -> bool:
    from packaging.version import InvalidVersion, Version

    try:
        # Of a development version such as 2.7.0a0+git only the numbers count.
        return Version(version).release < Version(minimum).release
    except InvalidVersion:
        return False

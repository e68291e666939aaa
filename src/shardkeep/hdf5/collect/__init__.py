"""The collector: one process writes an HDF5 file for many, on this host and on others."""

from shardkeep.hdf5.collect.client import Client
from shardkeep.hdf5.collect.collector import Collector
from shardkeep.hdf5.collect.connecting import connect
from shardkeep.hdf5.collect.reading import snapshot

__all__ = ["Client", "Collector", "connect", "snapshot"]

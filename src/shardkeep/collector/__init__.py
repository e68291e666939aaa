"""The collector: one process that writes an HDF5 file for many, on this host and on others."""

from shardkeep._lazy import public_names
from shardkeep.collector.client.client import Client
from shardkeep.collector.client.connect import connect
from shardkeep.collector.collector import Collector
from shardkeep.collector.store.snapshot import snapshot

__all__ = ["Client", "Collector", "connect", "snapshot"]

__dir__ = public_names(__name__)

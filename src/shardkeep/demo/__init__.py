"""The whole promise on one machine: train, lose a worker, go on, and prove what was used."""

from shardkeep.demo.phases import run
from shardkeep.demo.report import Check, Death, DemoReport, EpochUse

__all__ = ["Check", "Death", "DemoReport", "EpochUse", "run"]

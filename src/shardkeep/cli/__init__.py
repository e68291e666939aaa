"""The ``shardkeep`` command: one file per command, each as thin as the function that it calls.

Other rooms import `app` and `exit_codes`.
"""

from shardkeep.cli.exit_codes import ExitCode
from shardkeep.cli.start.main import main

__all__ = ["ExitCode", "main"]

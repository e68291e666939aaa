"""The ``shardkeep`` command: one file per command, each as thin as the function that it calls.

Other rooms import `app` and `exit_codes`.
"""

from shardkeep.cli.app import main
from shardkeep.cli.exit_codes import ExitCode

__all__ = ["ExitCode", "main"]

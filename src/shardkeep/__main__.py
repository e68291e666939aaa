"""``python -m shardkeep``: the same as the command ``shardkeep``."""

from shardkeep.cli import main

if __name__ == "__main__":
    main()

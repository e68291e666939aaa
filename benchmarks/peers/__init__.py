"""Programs that read training records: Shardkeep, its peers, and the limits of the machine."""

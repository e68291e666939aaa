"""Programs of HDF5: Shardkeep and, in processes of their own, its peers."""

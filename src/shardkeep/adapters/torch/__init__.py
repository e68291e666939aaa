"""PyTorch: batches of a `Loader`, and records and HDF5 rows by number, for its DataLoader.

::

    DataLoader(loader, num_workers=n)     a torch DataLoader with state, length and order of the loader
    ShardkeepDataset(loader)              for a plain torch DataLoader, or torchdata's StatefulDataLoader
    RecordDataset(paths, features)        map style: records of TFRecord files by number
    H5Dataset(path, ["x", "y"])           map style: rows of an HDF5 file by number
    collate                               rows into a batch, in pinned memory where there is an accelerator

Worker k of n reads the steps k, k + n, … of the rank's plan, and DataLoader asks its workers in turn. So
any number of workers delivers the sequence of the loader, each record once.
"""

from shardkeep._lazy import public_names
from shardkeep.adapters.torch.collation import collate
from shardkeep.adapters.torch.data_loader import DataLoader
from shardkeep.adapters.torch.dataset import ShardkeepDataset
from shardkeep.adapters.torch.map_style import H5Dataset, RecordDataset
from shardkeep.adapters.torch.tensors import RaggedTensors

__all__ = ["DataLoader", "H5Dataset", "RaggedTensors", "RecordDataset", "ShardkeepDataset", "collate"]

__dir__ = public_names(__name__)

"""TFRecord files: reading, writing, and the Examples in them."""

from shardkeep.tfrecord.example import decode_example, encode_example
from shardkeep.tfrecord.features import FixedLen, Image, VarLen
from shardkeep.tfrecord.ragged import Ragged
from shardkeep.tfrecord.reader import Reader
from shardkeep.tfrecord.shards import ShardWriter
from shardkeep.tfrecord.writer import Writer

__all__ = [
    "FixedLen",
    "Image",
    "Ragged",
    "Reader",
    "ShardWriter",
    "VarLen",
    "Writer",
    "decode_example",
    "encode_example",
]

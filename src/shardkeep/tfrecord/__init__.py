"""TFRecord files: reading, writing, and the Examples in them."""

from shardkeep.tfrecord.arrow import read_arrow
from shardkeep.tfrecord.columns import read_columns
from shardkeep.tfrecord.events import read_scalars
from shardkeep.tfrecord.example import decode_example, encode_example
from shardkeep.tfrecord.features import FixedLen, Image, VarLen
from shardkeep.tfrecord.follow import FileChange, follow
from shardkeep.tfrecord.index import Index, build_index
from shardkeep.tfrecord.index_text import read_text_index, write_text_index
from shardkeep.tfrecord.ragged import Ragged
from shardkeep.tfrecord.reader import Reader
from shardkeep.tfrecord.schema import Schema, infer_schema
from shardkeep.tfrecord.sequence_example import decode_sequence_example, encode_sequence_example
from shardkeep.tfrecord.shards import ShardWriter
from shardkeep.tfrecord.writer import Writer

__all__ = [
    "FileChange",
    "FixedLen",
    "Image",
    "Index",
    "Ragged",
    "Reader",
    "Schema",
    "ShardWriter",
    "VarLen",
    "Writer",
    "build_index",
    "decode_example",
    "decode_sequence_example",
    "encode_example",
    "encode_sequence_example",
    "follow",
    "infer_schema",
    "read_arrow",
    "read_columns",
    "read_scalars",
    "read_text_index",
    "write_text_index",
]

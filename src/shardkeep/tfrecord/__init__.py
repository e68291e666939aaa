"""TFRecord files: reading, writing, and the Examples in them.

`format` has the frames, `index` the offsets of the records, `example` their decoding.
Other rooms import `damage`, `reader`, `shard_names` and `shard_sinks`.
"""

from shardkeep._lazy import public_names
from shardkeep.tfrecord.events.scalars import read_scalars
from shardkeep.tfrecord.example.arrow import read_arrow, to_arrow
from shardkeep.tfrecord.example.columns import read_columns
from shardkeep.tfrecord.example.example import decode_example, encode_example
from shardkeep.tfrecord.example.features import FixedLen, Image, VarLen
from shardkeep.tfrecord.example.ragged import Ragged
from shardkeep.tfrecord.example.schema import Schema, infer_schema
from shardkeep.tfrecord.example.sequence import decode_sequence_example, encode_sequence_example
from shardkeep.tfrecord.follow.follow import FileChange, follow
from shardkeep.tfrecord.index.index import Index, build_index
from shardkeep.tfrecord.index.text import read_text_index, write_text_index
from shardkeep.tfrecord.reader import Reader
from shardkeep.tfrecord.shard_writer import ShardWriter
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
    "to_arrow",
    "write_text_index",
]

__dir__ = public_names(__name__)

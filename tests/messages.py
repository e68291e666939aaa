"""Records that are not Examples, by the name that errors give them.

The messages follow tensorflow/core/example/example.proto, tensorflow_serving/apis/input.proto and
tensorflow/core/util/event.proto.
"""

from __future__ import annotations

from shardkeep.tfrecord import encode_example, encode_sequence_example

_LISTED = encode_example({"id": 3, "x": b"y"})
_CONTEXT = encode_example({"query": b"q"})

OTHER_MESSAGES = {
    "tf.train.SequenceExample": encode_sequence_example({"id": 3}, {"words": [[b"a"], [b"b", b"c"]]}),
    "tensorflow.serving.ExampleListWithContext": b"".join(
        [*2 * [bytes([0x0A, len(_LISTED)]) + _LISTED], bytes([0x12, len(_CONTEXT)]) + _CONTEXT]
    ),
    "tensorflow.Event": bytes.fromhex("09 000000000000f03f 1a 0d") + b"brain.Event:2",
    "protobuf message of another type": b"\x08\x05\x12\x03abc",
    "JSON text": b'{"id": 3}',
    "PNG image": b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR",
}

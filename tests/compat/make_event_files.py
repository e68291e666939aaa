"""Write the event files of tests/compat/data/events with TensorFlow, and their expected contents.

    python make_event_files.py OUT_DIR

Run it with an interpreter that has TensorFlow. The files in the repository were made by 2.21.0.
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

out = pathlib.Path(sys.argv[1])
out.mkdir(parents=True, exist_ok=True)
facts = []


def only_file(folder: pathlib.Path) -> pathlib.Path:
    (path,) = folder.glob("*tfevents*")
    # Without the host name and the process id.
    return path.rename(folder / "events.out.tfevents.1700000000.host")


def metadata_of(plugin: str) -> tf.compat.v1.SummaryMetadata:
    data = tf.compat.v1.SummaryMetadata.PluginData(plugin_name=plugin)
    return tf.compat.v1.SummaryMetadata(plugin_data=data, data_class="DATA_CLASS_SCALAR")


def scalar(tag: str, value: float, step: int) -> None:
    """Do as tf.summary.scalar, which needs TensorBoard."""
    tf.summary.write(tag, tf.cast(value, tf.float32), step=step, metadata=metadata_of("scalars"))


# TensorFlow 2 writes tensors; one of these is not a scalar.
folder = out / "v2" / "train"
with tf.summary.create_file_writer(str(folder)).as_default():
    for step in range(3):
        scalar("loss", 1 / (step + 1), step=step)
        scalar("zero", 0.0, step=step)
        scalar("counted", 7 * step, step=step)
        facts += [["v2/train", "loss", step, float(np.float32(1 / (step + 1)))]]
        facts += [["v2/train", "zero", step, 0.0], ["v2/train", "counted", step, 7.0 * step]]
    tf.summary.write("weights", tf.ones((30, 3)), step=0, metadata=metadata_of("histograms"))
    tf.summary.write("note", tf.constant(["hello"]), step=0, metadata=metadata_of("text"))
    tf.summary.write("word", tf.constant("hello"), step=0)
    for dtype in ("float16", "bfloat16", "float64", "int32", "int16", "uint8", "uint32", "uint64", "int64"):
        tf.summary.write("raw/" + dtype, tf.cast(3, dtype), step=2**40, metadata=metadata_of("scalars"))
        facts += [["v2/train", "raw/" + dtype, 2**40, 3.0]]
    tf.summary.write("plain", tf.constant(-2.5), step=4)
    tf.summary.write("vector", tf.constant([1.0, 2.0]), step=4)
    facts += [["v2/train", "plain", 4, -2.5]]
only_file(folder)

# TensorFlow 1: simple_value, and tensors whose metadata come with the first only.
folder = out / "v1"
with tf.compat.v1.Graph().as_default():
    writer = tf.compat.v1.summary.FileWriter(str(folder), graph=tf.compat.v1.get_default_graph())
for step in (0, 1, 2, 1):
    values = [
        tf.compat.v1.Summary.Value(tag="accuracy", simple_value=step / 4),
        tf.compat.v1.Summary.Value(tag="größe", simple_value=-step),
    ]
    for tag, value, plugin in [("tensor", step + 0.125, "scalars"), ("other", 1.0, "mine")]:
        tensor = tf.make_tensor_proto(value, tf.float64)
        values.append(tf.compat.v1.Summary.Value(tag=tag, tensor=tensor, metadata=metadata_of(plugin)))
    writer.add_summary(tf.compat.v1.Summary(value=values), step)
    facts += [["v1", "accuracy", step, step / 4], ["v1", "größe", step, -float(step)]]
    facts += [["v1", "tensor", step, step + 0.125]]
writer.add_session_log(tf.compat.v1.SessionLog(status=tf.compat.v1.SessionLog.STOP), 3)
writer.close()
only_file(folder)
(out / "facts.json").write_text(json.dumps({"tensorflow": tf.__version__, "scalars": facts}))

"""vahidk/tfrecord's side of a comparison, in a process of its own: TensorFlow registers Example too."""

import importlib.metadata

from tfrecord.reader import tfrecord_iterator

from benchmarks.peer_loop import serve


def iterate(job, paths, argument):
    """Read every record, one by one, as this package does: without comparing a CRC."""
    return sum(1 for path in paths for _ in tfrecord_iterator(path))


if __name__ == "__main__":
    serve({"tfrecord": importlib.metadata.version("tfrecord")}, iterate)

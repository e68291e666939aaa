"""vahidk/tfrecord's side of the comparisons, in its own process, since TensorFlow registers Example too."""

import importlib.metadata

from tfrecord.reader import tfrecord_iterator

from benchmarks.peer_loop import serve


def iterate(job, paths, argument):
    """Read every record one by one, without a check of the CRC, as this package does."""
    return sum(1 for path in paths for _ in tfrecord_iterator(path))


if __name__ == "__main__":
    serve({"tfrecord": importlib.metadata.version("tfrecord")}, iterate)

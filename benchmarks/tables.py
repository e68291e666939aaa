"""The tables: a workload each, with a row for every peer, or the reason why a peer has none."""

from __future__ import annotations

from collections.abc import Iterator

import benchmarks.adapters.tables
import benchmarks.hdf5.tables
from benchmarks.measure import Peer, Table
from benchmarks.workloads import damaged, many_shards

__all__ = ["TABLES", "find"]

_NO_EXAMPLES = "does not decode Examples"
_NO_STATE = "has no state in the middle of an epoch"
_NO_WHEEL = "does not install: no wheel, and its source needs OpenCV and libjpeg-turbo"
_BY_SAMPLE = "has no columns: user code decodes each sample"
_NO_ORDER = "reads in order, or shuffles files only"

TABLES = [
    Table(
        "raw",
        "Raw records in order: 60,000 of 1.7 KB, in batches of 256",
        "small",
        "peers.ours raw",
        (
            Peer("tf.data, as in its guides", "peers.tfdata raw usual", 2),
            Peer("tf.data, tuned", "peers.tfdata raw best", 2),
            Peer("vahidk/tfrecord (no checksum)", "peers.vahidk raw", 2),
            Peer("rustfrecord (parsed)", "peers.rustfrecord raw", 2),
            Peer("ArrayRecord + Grain", "peers.grain_arrayrecord raw", 2),
            Peer("webdataset", "peers.webdataset raw", 2),
            Peer("MosaicML streaming", "peers.streaming raw", 2),
            Peer("LitData", "peers.litdata raw", 2),
            Peer("SPDL", "peers.spdl raw", 2),
            Peer("DALI on the CPU", "peers.dali raw", 2),
            Peer("FFCV", _NO_WHEEL),
            Peer("Ray Data read_tfrecords", "decodes each record into columns: see the table of columns"),
            Peer("limit: read() on all cores", "peers.limits read"),
            Peer("limit: read() and memcpy", "peers.limits memcpy"),
            Peer("limit: read() and CRC-32C", "peers.limits crc"),
        ),
    ),
    Table(
        "columns",
        "Decoded columns: 400,000 Examples of 650 bytes with 40 features, in batches of 1,024",
        "table",
        "peers.ours table",
        (
            Peer("tf.data, as in its guides", "peers.tfdata table usual", 2),
            Peer("tf.data, tuned", "peers.tfdata table best", 2),
            Peer("vahidk/tfrecord, DataLoader", "peers.vahidk table", 2),
            Peer("vahidk/tfrecord, DataLoader of 2 workers", "peers.vahidk table 2", 2),
            Peer("rustfrecord", "peers.rustfrecord table", 2),
            Peer("Ray Data read_tfrecords", "peers.ray table", 2),
            Peer("MosaicML streaming, its own columns", "peers.streaming table", 2),
            Peer("LitData, dicts of numbers", "peers.litdata table", 2),
            Peer("DALI on the CPU", "peers.dali table", 2),
            Peer("FFCV", _NO_WHEEL),
            Peer("ArrayRecord + Grain", _NO_EXAMPLES),
            Peer("webdataset", _BY_SAMPLE),
            Peer("SPDL", _BY_SAMPLE),
            Peer("limit: read() and CRC-32C", "peers.limits crc"),
        ),
        batch=1024,
    ),
    Table(
        "shuffled",
        "Shuffled reads: 60,000 records of 1.7 KB, all mixed with all, in batches of 256",
        "small",
        "peers.ours shuffled",
        (
            Peer("tf.data, a buffer of all records", "peers.tfdata shuffled", 2),
            Peer("vahidk/tfrecord, a queue of all records", "peers.vahidk shuffled", 2),
            Peer("ArrayRecord + Grain", "peers.grain_arrayrecord shuffled", 2),
            Peer("webdataset, a buffer of all records", "peers.webdataset shuffled", 2),
            Peer("MosaicML streaming", "peers.streaming shuffled", 2),
            Peer("LitData", "peers.litdata shuffled", 2),
            Peer("DALI on the CPU, a buffer of all records", "peers.dali shuffled", 2),
            Peer("FFCV", _NO_WHEEL),
            Peer("rustfrecord", _NO_ORDER),
            Peer("SPDL", _NO_ORDER),
            Peer("Ray Data read_tfrecords", "decodes each record into columns"),
        ),
    ),
    Table(
        "resume",
        "Resume: time to the first batch after a restart in the middle of a shuffled epoch",
        "small",
        "peers.ours resume",
        (
            Peer("tf.data, a checkpoint of the iterator", "peers.tfdata resume", 2),
            Peer("ArrayRecord + Grain", "peers.grain_arrayrecord resume", 2),
            Peer("MosaicML streaming", "peers.streaming resume", 2),
            Peer("LitData", "peers.litdata resume", 2),
            Peer("vahidk/tfrecord in order, the first half dropped", "peers.vahidk resume", 2),
            Peer("webdataset, the first half dropped", "peers.webdataset resume", 2),
            Peer("DALI on the CPU, a checkpoint", "peers.dali resume", 2),
            Peer("FFCV", _NO_STATE),
            Peer("rustfrecord", _NO_STATE),
            Peer("SPDL", _NO_STATE),
            Peer("Ray Data", _NO_STATE),
        ),
        by="latency",
    ),
    Table(
        "png",
        "PNG to float32: 60,000 images of 32×32×3 with a label, in batches of 256",
        "small",
        "peers.ours png",
        (
            Peer("tf.data, as in its guides", "peers.tfdata png usual", 2),
            Peer("tf.data, tuned", "peers.tfdata png best", 2),
            Peer("torch DataLoader, vahidk/tfrecord and Pillow", "peers.vahidk png", 2),
            Peer("torch DataLoader of 2 workers, the same", "peers.vahidk png 2", 2),
            Peer("ArrayRecord + Grain and Pillow", "peers.grain_arrayrecord png", 2),
            Peer("webdataset of 2 workers", "peers.webdataset png", 2),
            Peer("MosaicML streaming of 2 workers, Pillow", "peers.streaming png", 2),
            Peer("LitData of 2 workers, Pillow", "peers.litdata png", 2),
            Peer("SPDL", "peers.spdl png", 2),
            Peer("DALI on the CPU", "peers.dali png", 2),
            Peer("FFCV", "stores JPEG or raw pixels, no PNG"),
            Peer("rustfrecord", "decodes no images"),
        ),
    ),
    Table(
        "jpeg",
        "JPEG to uint8: 4,000 images of 500×375 with a label, in batches of 64",
        "large",
        "peers.ours jpeg",
        (
            Peer("tf.data, tuned", "peers.tfdata jpeg best", 1.2),
            Peer("torch DataLoader, vahidk/tfrecord and Pillow", "peers.vahidk jpeg", 1),
            Peer("torch DataLoader of 2 workers, the same", "peers.vahidk jpeg 2", 1),
            Peer("DALI on the CPU", "peers.dali jpeg", 1),
            Peer("SPDL", "needs the libraries of FFmpeg, which are not in its wheel"),
            Peer("FFCV", _NO_WHEEL),
        ),
        batch=64,
    ),
    Table(
        "large raw",
        "Raw records of 51 KB in order: 4,000, in batches of 16",
        "large",
        "peers.ours raw",
        (
            Peer("tf.data, tuned", "peers.tfdata raw best", 3),
            Peer("limit: read() on all cores", "peers.limits read", 0.6),
        ),
        batch=16,
    ),
    Table(
        "one by one",
        "One record at a time, without batches: 60,000 of 1.7 KB, checksums checked",
        "small",
        "peers.ours one by one",
        (Peer("vahidk/tfrecord (no checksum)", "peers.vahidk one by one", 2),),
    ),
    Table(
        "read_columns",
        "Whole files as columns: 400,000 Examples of 40 features by read_columns",
        "table",
        "peers.ours columns",
        (
            Peer("tf.data, as in its guides", "peers.tfdata table usual", 20),
            Peer("tf.data, tuned", "peers.tfdata table best", 4),
        ),
        batch=1024,
    ),
    *(
        Table(
            f"columns {kind}",
            f"Decoded columns, {title}: 400,000 Examples of 40 features, in batches of 1,024",
            "table",
            f"peers.ours table {kind}",
            (Peer(label, f"peers.tfdata table {job}", wanted),),
            batch=1024,
        )
        for kind, title, label, job, wanted in (
            ("shuffled", "shuffle='global'", "tf.data, a buffer of all records", "shuffled", 3),
            ("blocks", "shuffle='blocks'", "tf.data, a buffer of all records", "shuffled", 4),
            ("files", "shard_by='files'", "tf.data, interleaved files", "usual", 3),
        )
    ),
    *(
        Table(
            f"first {kind}",
            f"Time to the first batch of 400,000 Examples, {kind}",
            "table",
            f"peers.ours {ours}",
            (Peer("tf.data", f"peers.tfdata first table {job}", 10),),
            batch=1024,
            by="latency",
        )
        for kind, ours, job in (("in order", "first", "best"), ("shuffled", "first shuffled", "shuffled"))
    ),
    Table(
        "write",
        "Columns written as 20,000 Examples of 40 features",
        "table",
        "peers.ours write",
        (Peer("TFRecordWriter", "peers.tfdata write", 10),),
        batch=20_000,
    ),
    Table(
        "random",
        "10,000 records by number",
        "table",
        "peers.ours random",
        (Peer("tf.data, skip() to each", "peers.tfdata skip", 50),),
        batch=10_000,
    ),
    *(
        Table(
            f"{job} {files}",
            f"{title}, {'records of 51 KB' if files == 'large' else 'records of 650 bytes'}",
            files,
            f"peers.ours {job}",
            (Peer("limit: read() on all cores", "peers.limits read", 0.7),),
        )
        for job, title in (("index", "Scan for an index"), ("verify", "verify"))
        for files in ("table", "large")
    ),
    Table(
        "repair",
        "Repair of 1,000 damages in 1 GB, synced",
        damaged,
        "peers.ours repair",
        (Peer("verify of the same file", "peers.ours verify file", 1 / 3),),
    ),
    *(
        Table(
            f"many shards {kind}",
            f"10,000 shards of 6 records, {kind}, with at most 64 open files",
            many_shards,
            f"peers.ours limited {job}",
            (Peer("itself without a limit", f"peers.ours {job}", 0.5),),
        )
        for kind, job in (("in order", "raw"), ("shuffled", "shuffled"))
    ),
    *benchmarks.hdf5.tables.TABLES,
    *benchmarks.adapters.tables.TABLES,
]


def find(wanted: str = "") -> Iterator[Table]:
    """Yield the tables whose names begin with `wanted`."""
    return (table for table in TABLES if table.name.startswith(wanted))

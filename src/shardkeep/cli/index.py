"""The command ``shardkeep index``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from shardkeep.cli.options.engine import engine_options
from shardkeep.cli.options.general import PATH, command, examples, exists_option, json_option
from shardkeep.cli.options.paths import data_files

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from shardkeep.files.publish import Exists


@command
@examples(
    "shardkeep index 'train-*.tfrecord'",
    "shardkeep index data --text .idx",
)
@click.argument("paths", nargs=-1, required=True, type=PATH)
@click.option("--verify", is_flag=True, help="Check the checksums of the payloads, too.")
@click.option(
    "--text",
    metavar="SUFFIX",
    help="Also write the text index of DALI and vahidk/tfrecord to PATH plus SUFFIX, such as '.idx'.",
)
@exists_option
@json_option
@engine_options
def index(
    paths: tuple[str, ...],
    verify: bool,
    text: str | None,
    exists: Exists,
    as_json: bool,
    executor: Executor | None,
) -> None:
    """Write the index of each TFRecord file.

    PATHS are uncompressed TFRecord files, folders or patterns, or URLs of files. An index has the offset of
    every record; it is written to PATH.skidx, or to the cache folder if the folder of PATH is read-only.
    Readers and loaders use it until the file changes. --exists applies to the text index.
    """
    from shardkeep.cli.output.console import print_json
    from shardkeep.cli.output.progress import watched
    from shardkeep.cli.output.shards import print_indexes
    from shardkeep.tfrecord import build_index, write_text_index

    if os.environ.get("SHARDKEEP_INDEX") == "off" and not text:
        raise click.UsageError("SHARDKEEP_INDEX=off: no index would be stored; unset it, or pass --text")
    names = data_files(paths, "tfrecord")
    with watched("scan") as progress:
        indexes = build_index(names, verify=verify, executor=executor, progress=progress)
    found = dict(zip(names, indexes, strict=True))
    for name in names if text else ():
        write_text_index(name, f"{name}{text}", exists=exists)
    if as_json:
        print_json(
            [{"path": name, "records": len(one), "bytes": one.size_bytes} for name, one in found.items()]
        )
    else:
        print_indexes(found)

"""``shardkeep schema``: what to pass as ``features=``."""

from __future__ import annotations

import click

from shardkeep.cli.options.general import command, json_option


@command
@click.argument("paths", nargs=-1, required=True, type=click.Path())
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="How many records to look at, over all files.",
)
@click.option("--all", "every", is_flag=True, help="Look at every record.")
@json_option
def schema(paths: tuple[str, ...], sample: int, every: bool, as_json: bool) -> None:
    """Tell the features of tf.train.Example records.

    PATHS are TFRecord files or patterns. Prints Python source to paste where features= is needed:
    what is fixed, what is ragged, what is an image, and in remarks what was seen of it. A feature
    that has different kinds in two records is an error that names both.
    """
    from shardkeep.tfrecord import infer_schema

    found = infer_schema(paths, None if every else sample)
    if as_json:
        from shardkeep.cli.output.console import print_json

        print_json(found.to_dict())
    else:
        click.echo(found.source())

"""The command ``shardkeep view``."""

from __future__ import annotations

import click

from shardkeep.cli.options.general import PATH, command, examples, json_option


@command
@examples("shardkeep view data run", "shardkeep view all.h5 --json")
@click.argument("paths", nargs=-1, required=True, type=PATH)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="TCP port; by default any free one.")
@click.option("--token", help="Secret part of the address, at least 16 characters; by default a random one.")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser of this machine.")
@json_option
def view(paths: tuple[str, ...], host: str, port: int, token: str | None, opens: bool, as_json: bool) -> None:
    """Show data sets, records, damage, HDF5 files and runs on a web page.

    PATHS are files and folders; nothing outside them is read, and nothing is written. The address
    that is printed has a secret token. Only this machine can connect, unless --host is an address
    that others reach: then --token is necessary, gives access to PATHS, and crosses the network
    unencrypted. Safer from another machine: ssh -L 8800:127.0.0.1:8800 HOST. Ctrl-C ends the
    command.
    """
    import webbrowser

    from shardkeep.cli.output.console import print_json_line
    from shardkeep.viewer.serve import serve

    def started(address: str) -> None:
        print_json_line({"address": address}) if as_json else click.echo(address)
        if opens:
            webbrowser.open(address)

    serve(paths, host=host, port=port, token=token, started=started)

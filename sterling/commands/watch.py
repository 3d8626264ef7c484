"""``sterling watch runs/``: show runs on a local page while they train, or write it as files."""

from __future__ import annotations

import argparse
from pathlib import Path

from sterling.commands.options import option_values

DEFAULT_PORT = 8050
EXPLAINED = """\
Serves a page on 127.0.0.1 until Ctrl-C: a table of all runs below FOLDER with their state,
curves with intervals of the runs that are ticked, and a page for each run with its settings,
log, films and warnings. Runs that are being written are followed. With --static the page is
written as files instead, which a browser opens without a server.

Exit code 0; 2 for wrong use."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling watch``."""
    parser.epilog = EXPLAINED
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="a folder of runs, or one run")
    port = f"port of the page; 0 chooses a free one ({DEFAULT_PORT})"
    add("--port", type=option_values.integer, metavar="N", help=port)
    add("--static", type=Path, metavar="OUT", help="write the page into this folder, and exit")


def carry_out(chosen: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C, or write it as files."""
    from sterling.system.mistake import Mistake

    if not chosen.folder.is_dir():
        raise Mistake(f"{chosen.folder} is not a folder. Name a folder of runs.")
    if chosen.static is not None:
        if chosen.port is not None:
            raise Mistake("--port has no effect with --static. Leave out one of them.")
        from sterling.report.watch.static_page import write_static_page

        print(write_static_page(chosen.folder, chosen.static))
        return 0
    from sterling.report.watch.watch_server import WatchServer

    port = DEFAULT_PORT if chosen.port is None else chosen.port
    with WatchServer(chosen.folder, port) as server:
        print(f"watching {chosen.folder} at {server.url} (Ctrl-C ends it)", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
    return 0

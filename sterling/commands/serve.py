"""``sterling serve FOLDER``: answer requests for actions, or for chat completions, over HTTP."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from sterling.commands.options import option_values

HOST, PORT, SLOTS = "127.0.0.1", 8000, 8


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sterling serve``."""
    add = parser.add_argument
    add("folder", metavar="FOLDER", type=Path, help="the run's folder")
    port = f"port to listen on; 0: a free one ({PORT})"
    add("--port", type=option_values.integer, metavar="N", default=PORT, help=port)
    host = f"address to listen on; 0.0.0.0: reachable from other machines ({HOST})"
    add("--host", metavar="ADDRESS", default=HOST, help=host)
    which = "the seed whose agent acts (the run's first)"
    add("--seed", type=option_values.integer, metavar="N", help=which)
    noisy = "sample actions as in training, instead of the most likely ones"
    add("--sample", action="store_true", help=noisy)
    context = "of a language model: most tokens of messages and answer (as in training)"
    add("--context", type=option_values.integer, metavar="N", help=context)
    slots = f"of a language model: answers written at a time ({SLOTS})"
    add("--slots", type=option_values.integer, metavar="N", help=slots)


def carry_out(chosen: argparse.Namespace) -> int:
    """Serve until Ctrl-C; return 0."""
    import sterling
    from sterling.types import Mistake

    if not 0 <= chosen.port <= 65535:
        raise Mistake(f"--port {chosen.port}: ports lie between 0 and 65535.")
    run = sterling.load(chosen.folder)
    if run.settings.speech is not None:
        return _serve_language_model(chosen, run)
    for name in ("context", "slots"):
        if getattr(chosen, name) is not None:
            raise Mistake(f"--{name} is for language models; leave it out for a control policy.")
    return _serve_policy(chosen, run)


def _serve_language_model(chosen: argparse.Namespace, run: Any) -> int:
    """Serve a language model."""
    from sterling.deploy.serving.trained_chat_server import chat_server
    from sterling.types import Mistake

    if chosen.sample:
        raise Mistake("--sample is for control policies; requests say it by their temperature.")
    slots = SLOTS if chosen.slots is None else chosen.slots
    server = chat_server(run, chosen.seed, chosen.folder.resolve().name, chosen.context, slots)
    return _run_server(server, chosen, run, "/v1")


def _serve_policy(chosen: argparse.Namespace, run: Any) -> int:
    """Serve a control policy."""
    from sterling.deploy.serving.policy_server import PolicyServer
    from sterling.deploy.serving.policy_sessions import PolicySessions

    server = PolicyServer(PolicySessions(run, chosen.seed, chosen.sample))
    server.sessions.warm_up()
    return _run_server(server, chosen, run)


def _run_server(server: Any, chosen: argparse.Namespace, run: Any, path: str = "") -> int:
    """Serve until Ctrl-C; the line that says where ends with ``path``. Return 0."""
    import asyncio

    def ready(port: int) -> None:
        what = f"{run.settings.title} of {run.settings.name}"
        print(f"serving {what} on http://{chosen.host}:{port}{path} (Ctrl-C ends)", flush=True)

    asyncio.run(_until_interrupted(server, chosen, ready))
    print("stopped")
    return 0


async def _until_interrupted(server: Any, chosen: argparse.Namespace, ready: Any) -> None:
    """Serve until SIGINT or SIGTERM."""
    import asyncio
    import contextlib
    import signal

    task = asyncio.create_task(server.serve(chosen.host, chosen.port, ready))
    loop = asyncio.get_running_loop()
    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task

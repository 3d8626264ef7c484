"""A worker process: messages over a socket, and the loop that answers them.

Only small messages go through the socket; observations and actions are in the shared arrays. This
file runs inside worker processes, so it imports nothing slow.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

from sterling.envs.hosted.shared_memory import (
    ContractViolation,
    EnvDescription,
    NotGymnasiumEnv,
    make_shared_arrays,
)
from sterling.envs.hosted.worker_env import HostedEnv, HostedEnvs, describe_error, inspect_factory

CLOSE_SECONDS = 5.0  # seconds that environments get to close

# What these lines import loads no JAX, which would take a worker seconds and memory.
WORKER_SCRIPT = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from sterling.envs.hosted.worker_loop import serve_requests
serve_requests(int(sys.argv[2]), int(sys.argv[3]))
"""


def send_message(line: socket.socket, message: Any) -> None:
    """Send one pickled message, its length first."""
    data = pickle.dumps(message)
    line.sendall(struct.pack("<I", len(data)) + data)


def receive_message(line: socket.socket, deadline: float | None = None) -> Any:
    """Return the next message; ``deadline`` is in ``time.monotonic`` seconds.

    Raises ``EOFError`` when the other side is gone and ``TimeoutError`` after the deadline.
    """
    (size,) = struct.unpack("<I", _read_bytes(line, 4, deadline))
    return pickle.loads(_read_bytes(line, size, deadline))


def serve_requests(line: int, memory: int) -> None:
    """Answer messages from the socket ``line`` until it closes; ``memory`` is the open file of the
    shared arrays."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    trainer, hosted = socket.socket(fileno=line), None
    # these errors say that the trainer is gone
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        factory = _receive_factory(trainer)
        while factory is not None:
            message = receive_message(trainer)
            if message == "go" and hosted is not None:
                send_message(trainer, hosted.carry_out_orders())
            elif message[0] == "inspect":
                send_message(trainer, _inspect_factory(factory, *message[1:]))
            else:
                hosted = _host_envs(factory, memory, message)
    if hosted is not None:
        hosted.close()


def _receive_factory(trainer: socket.socket) -> Callable[[], Any] | None:
    """Receive the factory; if it cannot be unpickled here, send the reason and return None."""
    import cloudpickle

    data = receive_message(trainer)
    try:
        return cloudpickle.loads(data)
    except Exception as error:
        send_message(
            trainer,
            ("failed", f"the factory cannot be unpickled in a worker: {describe_error(error)}"),
        )
        return None


def _inspect_factory(
    factory: Callable[[], Any], names: tuple[str, ...], weights: tuple[float, ...]
) -> tuple[str, Any]:
    """Return ("ok", the environment's description as a plain tuple), or the kind of failure and its
    reason."""
    try:
        return "ok", tuple(inspect_factory(factory, names, weights))
    except NotGymnasiumEnv as error:
        return "not gymnasium", describe_error(error)
    except ContractViolation as error:
        return "mistake", describe_error(error)
    except Exception as error:
        return "failed", describe_error(error)


def _host_envs(factory: Callable[[], Any], memory: int, message: tuple[Any, ...]) -> HostedEnvs:
    described, envs, workers, worker, indexes = message
    description = EnvDescription(*described)
    shared = make_shared_arrays(description, envs, workers, memory)
    return HostedEnvs(
        [HostedEnv(factory, description, shared, index) for index in indexes], shared, worker
    )


def _die_with_parent() -> None:
    """Kill this process and its children when the trainer ends: standard input is a pipe that it
    holds open."""
    while os.read(0, 1):
        pass
    time.sleep(CLOSE_SECONDS)
    os.killpg(0, signal.SIGKILL)


def _read_bytes(line: socket.socket, size: int, deadline: float | None) -> bytes:
    data = b""
    while len(data) < size:
        if deadline is not None:
            line.settimeout(max(deadline - time.monotonic(), 1e-6))
        part = line.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data

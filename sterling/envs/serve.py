"""A worker process: messages over a socket, and the loop that answers them.

Only small messages go through the socket; observations and actions lie on the shared board. Like
``seat`` this imports nothing slow.
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

from sterling.envs.board import NoneMade, Problem, Violation, board_of
from sterling.envs.seat import Seat, Seats, explain, probe

GRACE = 5.0  # seconds the environments have to close themselves

# A worker must not import the packages ``sterling`` and ``sterling.envs`` themselves: they would
# load JAX into every one of them. Hollow packages stand in while the few that it needs are loaded.
BOOT = """
import json, os, sys, types
paths, folder = json.loads(sys.argv[1])
sys.path[:] = paths
for name, place in (("sterling", os.path.dirname(folder)), ("sterling.envs", folder)):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [place]
from sterling.envs.serve import serve
del sys.modules["sterling"], sys.modules["sterling.envs"]
serve(int(sys.argv[2]), int(sys.argv[3]))
"""


def send(line: socket.socket, message: Any) -> None:
    """One message, length first."""
    data = pickle.dumps(message)
    line.sendall(struct.pack("<I", len(data)) + data)


def receive(line: socket.socket, deadline: float | None = None) -> Any:
    """The next message; ``deadline`` in ``time.monotonic``.

    Raises ``EOFError`` when the other side is gone and ``TimeoutError`` past the deadline.
    """
    (size,) = struct.unpack("<I", _read(line, 4, deadline))
    return pickle.loads(_read(line, size, deadline))


def serve(line: int, memory: int) -> None:
    """Answer over the socket ``line`` until it closes; ``memory`` is the board's open file."""
    threading.Thread(target=_die_with_parent, daemon=True).start()
    boss, seats = socket.socket(fileno=line), None
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):  # no more orders
        factory = _load(boss)
        while factory is not None:
            message = receive(boss)
            if message == "go" and seats is not None:
                send(boss, seats.obey())
            elif message[0] == "probe":
                send(boss, _probe(factory, *message[1:]))
            else:
                seats = _take_seats(factory, memory, message)
    if seats is not None:
        seats.close()


def _load(boss: socket.socket) -> Callable[[], Any] | None:
    """Receive the factory; None (and the reason is sent) where it cannot be read here."""
    import cloudpickle

    data = receive(boss)
    try:
        return cloudpickle.loads(data)
    except Exception as error:
        send(boss, ("failed", f"the factory cannot be read in a worker: {explain(error)}"))
        return None


def _probe(
    factory: Callable[[], Any], names: tuple[str, ...], weights: tuple[float, ...]
) -> tuple[str, Any]:
    """The problem as a plain tuple, or why there is none."""
    try:
        return "ok", tuple(probe(factory, names, weights))
    except NoneMade as error:
        return "none", explain(error)
    except Violation as error:
        return "mistake", explain(error)
    except Exception as error:
        return "failed", explain(error)


def _take_seats(factory: Callable[[], Any], memory: int, message: tuple[Any, ...]) -> Seats:
    described, envs, workers, worker, indexes = message
    problem = Problem(*described)
    board = board_of(problem, envs, workers, memory)
    return Seats([Seat(factory, problem, board, index) for index in indexes], board, worker)


def _die_with_parent() -> None:
    """Standard input is a pipe held by the trainer: where it ends, so do we and our children."""
    while os.read(0, 1):
        pass
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)


def _read(line: socket.socket, size: int, deadline: float | None) -> bytes:
    data = b""
    while len(data) < size:
        if deadline is not None:
            line.settimeout(max(deadline - time.monotonic(), 1e-6))
        part = line.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data

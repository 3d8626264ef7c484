"""Compile an exported C policy and call it, to compare its actions."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from sterling.deploy.agreement import Runner
from sterling.deploy.graph.policy_graph import PolicyGraph, shape_at_batch_one
from sterling.system.shown_values import short_text
from sterling.types import Mistake

FLAGS = ("-std=c99", "-Wall", "-Wextra", "-pedantic", "-Werror", "-O2")
COMPILE_SECONDS = 300.0


def compiler() -> str | None:
    """Return the path of the system's C compiler, or None."""
    return next((found for name in ("cc", "gcc", "clang") if (found := shutil.which(name))), None)


def c_runner(source: str, graph: PolicyGraph) -> tuple[Runner, str]:
    """Return a function from inputs by name to outputs by name that calls the compiled policy, and
    the compiler's name.

    Raise :class:`Mistake` if the compiler refuses the file.
    """
    command = compiler()
    assert command is not None
    with tempfile.TemporaryDirectory() as folder:
        file, library = Path(folder) / "policy.c", Path(folder) / "policy.so"
        file.write_text(source)
        words = [command, *FLAGS, "-fPIC", "-shared", "-o", str(library), str(file), "-lm"]
        done = subprocess.run(
            words, capture_output=True, text=True, check=False, timeout=COMPILE_SECONDS
        )
        if done.returncode:
            raise Mistake(f"{command} does not compile the policy: {short_text(done.stderr)}")
        loaded = ctypes.CDLL(str(library))
    return _caller(loaded, graph), Path(command).name


def _caller(library: Any, graph: PolicyGraph) -> Runner:
    """Return a function that passes arrays to the compiled policy."""
    states = graph.with_role("state")
    fields = np.dtype(
        [(p.tensor.name, p.tensor.dtype, (max(_size(p), 1),)) for p in states], align=True
    )
    actions = [port for port in graph.outputs if port.role == "action"]

    def run(inputs: dict[str, Any]) -> dict[str, Any]:
        keep = np.zeros(1, fields)
        for port in states:
            keep[port.tensor.name][0] = np.ravel(inputs[port.tensor.name])
        given = [_argument(port, inputs) for port in graph.inputs if port.role != "state"]
        made = [np.zeros(max(_size(p), 1), p.tensor.dtype) for p in actions]
        memory = [ctypes.c_void_p(keep.ctypes.data)] if states else []
        given_words = [x if isinstance(x, ctypes.c_float) else _pointer(x) for x in given]
        library.policy(*given_words, *memory, *map(_pointer, made))
        outputs = {
            port.tensor.name: x.reshape(shape_at_batch_one(port.tensor.shape))
            for port, x in zip(actions, made, strict=True)
        }
        for port in states:
            shape = shape_at_batch_one(port.tensor.shape)
            outputs[f"next_{port.tensor.name}"] = keep[port.tensor.name][0].reshape(shape).copy()
        return outputs

    return run


def _argument(port: Any, inputs: dict[str, Any]) -> Any:
    value = np.ascontiguousarray(inputs[port.tensor.name], port.tensor.dtype)
    return ctypes.c_float(float(value[0])) if port.role == "reward" else value


def _pointer(x: np.ndarray) -> Any:
    return ctypes.c_void_p(x.ctypes.data)


def _size(port: Any) -> int:
    return int(np.prod(shape_at_batch_one(port.tensor.shape), dtype=int))

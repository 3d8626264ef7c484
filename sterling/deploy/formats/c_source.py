"""Write a policy graph as one C99 file: constant weights, no allocation, one observation a call."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from sterling.deploy.formats.c_operations import C_TYPES, Emitter, Operand
from sterling.deploy.graph.policy_graph import (
    PolicyGraph,
    Port,
    c_name,
    shape_at_batch_one,
    size_at_batch_one,
)
from sterling.types import Mistake

NUMBERS_A_LINE = 8
STACK_LIMIT = 32 * 1024  # bytes of intermediate arrays; larger ones are static
MAX_PARAMETERS = 2_000_000  # more would make a file of tens of megabytes


def c_source(graph: PolicyGraph, comment: str) -> str:
    """Return the C source of a policy: ``policy(...)``, and ``policy_reset`` if it has a memory.

    Raise :class:`Mistake` for a network too large for a source file.
    """
    if graph.parameters > MAX_PARAMETERS:
        raise Mistake(
            f"The policy has {graph.parameters:,} numbers, and C files are written up to "
            f"{MAX_PARAMETERS:,}. Export .onnx instead."
        )
    body, buffers = _body(graph)
    size = sum(count * np.dtype(kind).itemsize for kind, count in buffers.values())
    storage = "static " if size > STACK_LIMIT else ""
    lines = ["/*", *(f" * {line}" for line in _comment(comment, size, storage)), " */"]
    lines += ["#include <math.h>", "#include <stdbool.h>", "#include <stdint.h>", ""]
    lines += [line for name, x in graph.constants.items() for line in _constant(name, x)]
    lines += _state_lines(graph)
    lines += [f"void policy({', '.join(_arguments(graph))});", ""]
    lines += [f"void policy({', '.join(_arguments(graph))}) {{"]
    lines += [
        f"  {storage}{C_TYPES[kind]} {name}[{count}];" for name, (kind, count) in buffers.items()
    ]
    return "\n".join([*lines, *body, "}", ""])


def _comment(comment: str, size: int, storage: str) -> list[str]:
    """Return the lines of the opening comment."""
    where = "static, so calls must not overlap" if storage else "on the stack"
    safe = comment.replace("*/", "* /").replace("/*", "/ *")
    lines = [line for long in safe.splitlines() for line in re.findall(r".{1,110}", long) or [""]]
    lines.append("The observation is not checked: NaN, infinity or wrong choices give some action.")
    return [*lines, f"Intermediate arrays: {size} bytes, {where}. Compile with -O3, link with -lm."]


def _literal(x: Any, kind: str) -> str:
    """Return a number as C writes it."""
    if kind.startswith("float"):
        if not np.isfinite(x):
            return "NAN" if np.isnan(x) else "INFINITY" if x > 0 else "-INFINITY"
        text = f"{float(x):.9g}" if kind == "float32" else f"{float(x):.17g}"
        text = text if any(mark in text for mark in ".e") else f"{text}.0"
        return f"{text}f" if kind == "float32" else text
    return str(int(x))


def _constant(name: str, x: np.ndarray) -> list[str]:
    """Return the lines of a constant array."""
    kind = str(x.dtype)
    words = [_literal(each, kind) for each in x.ravel()]
    rows = [", ".join(words[i : i + NUMBERS_A_LINE]) for i in range(0, len(words), NUMBERS_A_LINE)]
    shape = "x".join(map(str, x.shape)) or "one number"
    head = f"static const {C_TYPES[kind]} {c_name(name)}[{max(x.size, 1)}] = {{ /* {shape} */"
    return [head, *(f"  {row}," for row in rows), "};", ""]


def _state_lines(graph: PolicyGraph) -> list[str]:
    """Return the type of a memory and the function that begins an episode."""
    if not graph.initial_state:
        return []
    fields, resets = [], []
    for port in graph.with_role("state"):
        name, size = c_name(port.tensor.name), size_at_batch_one(port.tensor.shape)
        fields.append(f"  {C_TYPES[port.tensor.dtype]} {name}[{size}];")
        start = np.asarray(graph.initial_state[port.tensor.name]).ravel()
        value = _literal(start[0], port.tensor.dtype)
        if not (start == start[0]).all():
            raise Mistake("C files need a memory that begins with equal numbers. Export .npz.")
        resets.append(f"  for (int i = 0; i < {size}; i++) state->{name}[i] = {value};")
    return [
        "/* The memory of an episode. */",
        *("typedef struct {", *fields, "} policy_state;", ""),
        *("/* Begin an episode. */", "void policy_reset(policy_state *state);", ""),
        *("void policy_reset(policy_state *state) {", *resets, "}", ""),
    ]


def _arguments(graph: PolicyGraph) -> list[str]:
    """Return the arguments of the function ``policy``."""
    made = []
    for port in graph.inputs:
        if port.role in ("obs", "noise"):
            made.append(f"const {C_TYPES[port.tensor.dtype]} *{c_name(port.tensor.name)}")
        elif port.role == "reward":
            made.append("float reward")
    made += ["policy_state *state"] * bool(graph.initial_state)
    for port in graph.outputs:
        if port.role == "action":
            made.append(f"{C_TYPES[port.tensor.dtype]} *{c_name(port.tensor.name)}")
    return made


def _body(graph: PolicyGraph) -> tuple[list[str], dict[str, tuple[str, int]]]:
    """Return the statements of ``policy``, and its buffers: type and size by name."""
    buffers = _Buffers(graph)
    operands: dict[str, Operand] = {}
    lines: list[str] = []
    for name, x in graph.constants.items():
        operands[name] = Operand(c_name(name), x.shape, str(x.dtype))
    for port in graph.inputs:
        text = {"reward": "(&reward)"}.get(port.role, c_name(port.tensor.name))
        text = f"state->{text}" if port.role == "state" else text
        operands[port.tensor.name] = Operand(
            text, shape_at_batch_one(port.tensor.shape), port.tensor.dtype
        )
        lines += [f"  (void){text};"] if port.role == "obs" else []
    for at, node in enumerate(graph.nodes):
        shape, kind = shape_at_batch_one(node.output.shape), node.output.dtype
        inputs = [operands[name] for name in node.inputs]
        if buffers.is_alias(node):
            operands[node.output.name] = Operand(inputs[0].text, shape, kind)
            continue
        output = Operand(buffers.take(at), shape, kind)
        lines += Emitter(output, inputs, node.attributes).lines(node.operation)
        operands[node.output.name] = output
        buffers.release(at)
    # the state last: actions may be computed from it
    ports = sorted(graph.outputs, key=lambda port: port.role == "state")
    lines += [line for port in ports for line in _copied(port, operands[port.source])]
    return lines, buffers.sizes


def _copied(port: Port, source: Operand) -> list[str]:
    """Return the statement that writes an output."""
    name = c_name(port.tensor.name.removeprefix("next_"))
    target = f"state->{name}" if port.role == "state" else c_name(port.tensor.name)
    return [f"  for (int i = 0; i < {source.size}; i++) {target}[i] = {source.text}[i];"]


class _Buffers:
    """Assigns intermediate arrays to few buffers: one is used again after its last use."""

    def __init__(self, graph: PolicyGraph):
        self.sizes: dict[str, tuple[str, int]] = {}
        self._graph, self._free = graph, list[str]()
        owner: dict[str, str] = {}  # aliases share the buffer of what they are an alias of
        self._last: dict[str, int] = {}
        for at, node in enumerate(graph.nodes):
            owner[node.output.name] = (
                owner.get(node.inputs[0], node.inputs[0])
                if self.is_alias(node)
                else node.output.name
            )
            for name in node.inputs:
                self._last[owner.get(name, name)] = at
        for port in graph.outputs:
            self._last[owner.get(port.source, port.source)] = len(graph.nodes)
        self._held: dict[str, str] = {}

    def is_alias(self, node: Any) -> bool:
        """Whether a node only gives its input another shape."""
        if node.operation == "broadcast":
            known = self._graph.tensors()[node.inputs[0]].shape
            return size_at_batch_one(known) == size_at_batch_one(node.output.shape)
        return bool(node.operation == "reshape")

    def take(self, at: int) -> str:
        """Return a buffer for the output of a node."""
        output = self._graph.nodes[at].output
        kind, size = output.dtype, size_at_batch_one(output.shape)
        fitting = [name for name in self._free if self.sizes[name][0] == kind]
        if fitting:
            name = min(fitting, key=lambda each: abs(self.sizes[each][1] - size))
            self._free.remove(name)
        else:
            name = f"b{len(self.sizes)}"
            self.sizes[name] = (kind, 1)
        self.sizes[name] = (kind, max(size, self.sizes[name][1]))
        self._held[output.name] = name
        return name

    def release(self, at: int) -> None:
        """Free the buffers that no later node reads."""
        for name in [name for name in self._held if self._last.get(name, at) <= at]:
            self._free.append(self._held.pop(name))

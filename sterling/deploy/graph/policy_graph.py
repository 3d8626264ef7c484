"""A policy as a graph of a few array operations: what every exported file is written from.

A *dimension* is a number of entries, or ``-k``: k times the batch size. The operations, with
NumPy's meaning and broadcasting:

    unary        neg exp log log1p expm1 tanh logistic sqrt rsqrt abs sign floor ceil rint
                 erf sin cos not
    binary       add sub mul div max min pow rem and or eq ne lt le gt ge
                 (div of whole numbers and rem round towards zero)
    where        (condition, if true, if false)
    cast         to the output's type
    reshape      to ``shape``; transpose by ``axes``
    broadcast    to ``shape``; a second input has the batch as its first axis
    concat       along ``axis``; slice along ``axis`` by ``start``, ``stop``, ``step``
    sum maximum minimum prod any all     over ``axes``, which are removed
    argmax argmin    over ``axis``, the first of equal entries
    matmul       of (..., m, k) and (..., k, n)
    conv         of (n, h, w, inputs) and (kh, kw, inputs, outputs), with ``strides`` and ``pads``
    take         entries of the first input along ``axis``, at the indices of the second
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterable
from typing import Any

import numpy as np

UNARY = {
    *("neg", "exp", "log", "log1p", "expm1", "tanh", "logistic", "sqrt", "rsqrt", "abs"),
    *("sign", "floor", "ceil", "rint", "erf", "sin", "cos", "not"),
}
BINARY = {
    *("add", "sub", "mul", "div", "max", "min", "pow", "rem", "and", "or"),
    *("eq", "ne", "lt", "le", "gt", "ge"),
}
ELEMENTWISE = UNARY | BINARY | {"where"}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """An array of the graph: its name, its dimensions (-k: k times the batch), its type."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # a NumPy name


@dataclasses.dataclass(frozen=True)
class Port:
    """An input or output of the policy.

    ``role`` is "obs", "reward" (of the action before), "state" (the memory), "noise" (random
    numbers) or "action". ``path`` names the entry of a dict observation or action. ``source`` is
    the tensor that an output is taken from. ``law`` of noise is "normal" or "uniform". ``keys`` of
    an action are the path's parts: numbers in a tuple, and names, also names of digits, in a dict.
    ``low`` and ``high`` are the ends of each choice of an observation, ``options`` the numbers of
    options of the choices that an action mask is for; () elsewhere.
    """

    tensor: Tensor
    role: str
    path: str = ""
    source: str = ""
    law: str = ""
    keys: tuple[int | str, ...] = ()
    low: tuple[int, ...] = ()
    high: tuple[int, ...] = ()
    options: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Node:
    """One operation, with the names of its inputs."""

    operation: str
    inputs: tuple[str, ...]
    output: Tensor
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class PolicyGraph:
    """A policy: inputs, outputs, constant arrays, and operations in the order to compute them."""

    inputs: list[Port]
    outputs: list[Port]
    constants: dict[str, np.ndarray]
    nodes: list[Node]
    initial_state: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)  # without batch

    def tensors(self) -> dict[str, Tensor]:
        """Return every array of the graph by its name."""
        made = {port.tensor.name: port.tensor for port in self.inputs}
        for name, value in self.constants.items():
            made[name] = Tensor(name, value.shape, str(value.dtype))
        return made | {node.output.name: node.output for node in self.nodes}

    def with_role(self, role: str) -> list[Port]:
        """Return the inputs with a role."""
        return [port for port in self.inputs if port.role == role]

    @property
    def parameters(self) -> int:
        """The number of constant numbers."""
        return sum(value.size for value in self.constants.values())


def size_at_batch_one(shape: tuple[int, ...]) -> int:
    """Return the number of entries of an array for a batch of one."""
    return math.prod(abs(each) for each in shape)


def shape_at_batch_one(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return an array's shape for a batch of one."""
    return tuple(abs(each) for each in shape)


def port_name(role: str, path: Iterable[Any], taken: Iterable[str]) -> str:
    """Return an entry's name, numbered if in C it would be one of those that are ``taken``."""
    known = {c_name(name) for name in taken}
    name = "_".join([role, *map(str, path)])
    numbered = (f"{name}_{number}" for number in itertools.count(2))
    return next(each for each in itertools.chain([name], numbered) if c_name(each) not in known)


def c_name(name: str) -> str:
    """Return a name that C accepts."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def pruned(graph: PolicyGraph) -> PolicyGraph:
    """Return the graph without nodes and constants that no output needs."""
    needed = {port.source for port in graph.outputs}
    nodes = []
    for node in reversed(graph.nodes):
        if node.output.name in needed:
            needed |= set(node.inputs)
            nodes.append(node)
    constants = {name: x for name, x in graph.constants.items() if name in needed}
    return dataclasses.replace(graph, nodes=nodes[::-1], constants=constants)


def without_needless_broadcasts(graph: PolicyGraph) -> PolicyGraph:
    """Return the graph with broadcasts removed where an elementwise operation broadcasts anyway."""
    known, plain = graph.tensors(), {}
    nodes = []
    for node in graph.nodes:
        inputs = list(node.inputs)
        if node.operation == "broadcast":
            plain[node.output.name] = node.inputs[0]
        for at, name in enumerate(node.inputs if node.operation in ELEMENTWISE else ()):
            tried = [*inputs[:at], plain.get(name, name), *inputs[at + 1 :]]
            if _broadcast([known[each].shape for each in tried]) == node.output.shape:
                inputs = tried
        nodes.append(dataclasses.replace(node, inputs=tuple(inputs)))
    return pruned(dataclasses.replace(graph, nodes=nodes))


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape that arrays of one rank, or single numbers, broadcast to."""
    ranks = {len(shape) for shape in shapes} - {0}
    if len(ranks) > 1:
        return None
    wide = [shape for shape in shapes if shape]
    columns = [{*each} - {1} for each in zip(*wide, strict=True)]
    if any(len(column) > 1 for column in columns):
        return None
    return tuple(column.pop() if column else 1 for column in columns)

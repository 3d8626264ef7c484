"""Build a policy graph node by node: values are constants, names of tensors, or random keys."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import numpy as np

from sterling.deploy.graph.policy_graph import Node, Port, Tensor
from sterling.types import Mistake

BATCH = "batch"  # the symbol of the batch size


class KeyValue:
    """Stands for anything computed from the random key alone."""


class BitsValue(KeyValue):
    """Stands for random bits on their way to uniform numbers."""


class RowNumberValue(KeyValue):
    """Stands for the numbers of the batch's rows, which may become random keys and nothing else."""


@dataclasses.dataclass(frozen=True)
class Value:
    """A tensor that is computed when the policy acts."""

    tensor: Tensor


def dimensions(shape: Any) -> tuple[int, ...]:
    """Return a traced shape as dimensions of the graph; raise Mistake if it is not a multiple of
    the batch size."""
    return tuple(_dimension(each) for each in shape)


def _dimension(each: Any) -> int:
    if isinstance(each, (int, np.integer)):
        return int(each)
    found = re.fullmatch(rf"(?:(\d+)\*)?{BATCH}", str(each))
    if found is None:
        raise Mistake(
            f"The policy cannot be exported: it makes an array whose size is {each}. Only "
            "multiples of the batch size are supported."
        )
    return -int(found[1] or 1)


class GraphBuilder:
    """Collects nodes and constants; equal constants are stored once."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.constants: dict[str, np.ndarray] = {}
        self.noise: list[Port] = []
        self.like: Value | None = None  # an array whose first axis is the batch
        self._count = 0
        self._interned: dict[Any, Value] = {}

    def add(
        self, operation: str, inputs: list[Any], shape: Any, dtype: Any, **attributes: Any
    ) -> Value:
        """Append a node and return its output."""
        if operation == "broadcast" and any(size < 0 for size in dimensions(shape)):
            inputs = [*inputs, self.like]
        names = tuple(self.value(each).tensor.name for each in inputs)
        output = Tensor(self._name("t"), dimensions(shape), str(np.dtype(dtype)))
        self.nodes.append(Node(operation, names, output, attributes))
        return Value(output)

    def value(self, each: Any) -> Value:
        """Return a value as a tensor of the graph; constants are stored."""
        if isinstance(each, Value):
            return each
        if isinstance(each, RowNumberValue):
            raise Mistake("The policy cannot be exported: it numbers the rows of the batch.")
        if isinstance(each, KeyValue):
            raise Mistake(
                "The policy cannot be exported: it uses its random key in another way than to draw "
                "normal or uniform numbers."
            )
        array = np.asarray(each)
        token = (array.shape, str(array.dtype), array.tobytes())
        if token not in self._interned:
            name = self._name("c")
            self.constants[name] = np.array(array, order="C")
            self._interned[token] = Value(Tensor(name, array.shape, str(array.dtype)))
        return self._interned[token]

    def draw(self, law: str, aval: Any) -> Value:
        """Return new random numbers, an input of the policy."""
        name = f"noise_{len(self.noise)}"
        tensor = Tensor(name, dimensions(aval.shape), str(np.dtype(aval.dtype)))
        self.noise.append(Port(tensor, "noise", law=law))
        return Value(tensor)

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

"""Write a policy graph as an ONNX model, with any batch size."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from sterling.deploy.graph.policy_graph import Node, PolicyGraph, Port, Tensor
from sterling.types import Mistake

OPSET = 18
IR_VERSION = 9  # the oldest that has this opset
BATCH_NAME = "batch"

SAME = {
    **{"neg": "Neg", "exp": "Exp", "log": "Log", "tanh": "Tanh", "logistic": "Sigmoid"},
    **{"sqrt": "Sqrt", "abs": "Abs", "sign": "Sign", "floor": "Floor", "ceil": "Ceil"},
    **{"rint": "Round", "erf": "Erf", "sin": "Sin", "cos": "Cos", "not": "Not", "add": "Add"},
    **{"sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min", "pow": "Pow"},
    **{"and": "And", "or": "Or", "eq": "Equal", "lt": "Less", "le": "LessOrEqual"},
    **{"gt": "Greater", "ge": "GreaterOrEqual", "where": "Where", "matmul": "MatMul"},
}
REDUCTIONS = {
    **{"sum": "ReduceSum", "prod": "ReduceProd", "maximum": "ReduceMax", "minimum": "ReduceMin"},
    **{"any": "ReduceMax", "all": "ReduceMin"},
}


def import_onnx() -> Any:
    """Return the package onnx; raise :class:`Mistake` if it is not installed."""
    try:
        import onnx
        import onnx.helper
        import onnx.numpy_helper
    except ImportError as error:
        raise Mistake(
            "Writing .onnx needs the package onnx: pip install 'sterling-rl[deploy]'. "
            "Without it, export .npz, .safetensors or .c."
        ) from error
    return onnx


def onnx_model(graph: PolicyGraph, metadata: dict[str, Any]) -> Any:
    """Return the ONNX model of a policy; ``metadata`` becomes entries of its metadata."""
    onnx = import_onnx()
    writer = _Writer(onnx, graph)
    for node in graph.nodes:
        writer.add_node(node)
    for port in graph.outputs:
        writer.add("Identity", [port.source], port.tensor.name)
    helper = onnx.helper
    made = helper.make_graph(
        writer.nodes,
        "policy",
        [writer.info(port) for port in graph.inputs],
        [writer.info(port) for port in graph.outputs],
        writer.initialisers,
    )
    model = helper.make_model(
        made,
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="sterling",
    )
    set_metadata(model, metadata)
    onnx.checker.check_model(model)
    return model


def set_metadata(model: Any, metadata: dict[str, Any]) -> None:
    """Replace the model's metadata; values that are not text are written as JSON."""
    words = {k: x if isinstance(x, str) else json.dumps(x) for k, x in metadata.items()}
    import_onnx().helper.set_model_props(model, words)


class _Writer:
    """Collects ONNX nodes and initialisers."""

    def __init__(self, onnx: Any, graph: PolicyGraph):
        self.onnx, self.graph, self.known = onnx, graph, graph.tensors()
        self.nodes: list[Any] = []
        self.initialisers: list[Any] = []
        self._count = 0
        for name, value in graph.constants.items():
            self.initialisers.append(onnx.numpy_helper.from_array(value, name))

    def info(self, port: Port) -> Any:
        """Return the type of an input or output; ``-1`` is the batch."""
        shape = [BATCH_NAME if size < 0 else size for size in port.tensor.shape]
        return self.onnx.helper.make_tensor_value_info(
            port.tensor.name, self._type(port.tensor.dtype), shape
        )

    def _type(self, dtype: str) -> int:
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def add(self, kind: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        """Append an ONNX node and return its output's name."""
        self._count += 1
        output = output or f"x{self._count}"
        self.nodes.append(
            self.onnx.helper.make_node(
                kind, inputs, [output], name=f"{kind}_{self._count}", **attributes
            )
        )
        return output

    def constant(self, value: Any) -> str:
        """Store a small array and return its name."""
        self._count += 1
        name = f"k{self._count}"
        self.initialisers.append(self.onnx.numpy_helper.from_array(np.asarray(value), name))
        return name

    def add_node(self, node: Node) -> None:
        """Append the ONNX nodes of one operation."""
        inputs, output, operation = list(node.inputs), node.output, node.operation
        if operation in SAME:
            self.add(SAME[operation], inputs, output.name)
        elif operation in REDUCTIONS:
            self._reduce(node)
        else:
            rule: Callable[[list[str], Tensor, dict[str, Any]], None]
            rule = getattr(self, f"_{operation}")
            rule(inputs, output, node.attributes)

    def _reduce(self, node: Node) -> None:
        kind, axes = REDUCTIONS[node.operation], self.constant(np.array(node.attributes["axes"]))
        x = node.inputs[0]
        if node.operation in ("any", "all"):
            x = self.add("Cast", [x], to=self._type("int32"))
            x = self.add(kind, [x, axes], keepdims=0)
            self.add("Cast", [x], node.output.name, to=self._type("bool"))
        else:
            self.add(kind, [x, axes], node.output.name, keepdims=0)

    def _one(self, output: Tensor) -> str:
        return self.constant(np.ones((), output.dtype))

    def _rsqrt(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self.add("Reciprocal", [self.add("Sqrt", inputs)], output.name)

    def _log1p(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self.add("Log", [self.add("Add", [*inputs, self._one(output)])], output.name)

    def _expm1(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self.add("Sub", [self.add("Exp", inputs), self._one(output)], output.name)

    def _ne(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self.add("Not", [self.add("Equal", inputs)], output.name)

    def _rem(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self.add("Mod", inputs, output.name, fmod=1)

    def _cast(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self.add("Cast", inputs, output.name, to=self._type(output.dtype))

    def _reshape(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        shape = np.array([-1 if size < 0 else size for size in output.shape], np.int64)
        self.add("Reshape", [*inputs, self.constant(shape)], output.name)

    def _broadcast(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        """Expand to a shape, in which the batch size is computed from the second input."""
        sizes = self.constant(np.array([max(size, 1) for size in output.shape], np.int64))
        if len(inputs) > 1:
            batch = self.add("Shape", [inputs[1]], start=0, end=1)
            times = self.constant(np.array([-min(size, 0) for size in output.shape], np.int64))
            sizes = self.add("Max", [self.add("Mul", [batch, times]), sizes])
        self.add("Expand", [inputs[0], sizes], output.name)

    def _transpose(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self.add("Transpose", inputs, output.name, perm=how["axes"])

    def _concat(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self.add("Concat", inputs, output.name, axis=how["axis"])

    def _slice(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        ends = [
            self.constant(np.array([how[k]], np.int64)) for k in ("start", "stop", "axis", "step")
        ]
        self.add("Slice", [*inputs, *ends], output.name)

    def _take(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self.add("Gather", inputs, output.name, axis=how["axis"])

    def _argmax(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self._arg("ArgMax", inputs, output, how)

    def _argmin(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        self._arg("ArgMin", inputs, output, how)

    def _arg(self, kind: str, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        found = self.add(kind, inputs, axis=how["axis"], keepdims=0)
        self.add("Cast", [found], output.name, to=self._type(output.dtype))

    def _conv(self, inputs: list[str], output: Tensor, how: dict[str, Any]) -> None:
        """Convolve with channels first, as ONNX does."""
        x = self.add("Transpose", [inputs[0]], perm=[0, 3, 1, 2])
        kernel = self.add("Transpose", [inputs[1]], perm=[3, 2, 0, 1])
        (top, bottom), (left, right) = how["pads"]
        pads = {"strides": how["strides"], "pads": [top, left, bottom, right]}
        self.add(
            "Transpose", [self.add("Conv", [x, kernel], **pads)], output.name, perm=[0, 2, 3, 1]
        )

"""How each primitive of JAX becomes operations of a policy graph."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from sterling.deploy.graph.convolution_rule import convolution
from sterling.deploy.graph.graph_builder import GraphBuilder, RowNumberValue, Value, dimensions
from sterling.deploy.graph.indexing_rules import gather, scatter
from sterling.types import Mistake

Rule = Callable[[GraphBuilder, list[Any], dict[str, Any], list[Any]], Any]

SAME = {  # primitives that are one elementwise operation
    **{name: name for name in ("neg", "exp", "log", "log1p", "expm1", "tanh", "logistic")},
    **{name: name for name in ("sqrt", "rsqrt", "abs", "sign", "floor", "ceil", "erf")},
    **{name: name for name in ("sin", "cos", "add", "sub", "mul", "max", "min", "and", "or")},
    **{name: name for name in ("not", "eq", "ne", "lt", "le", "gt", "ge", "pow", "div", "rem")},
    "add_any": "add",
}
REDUCTIONS = {
    **{"reduce_sum": "sum", "reduce_max": "maximum", "reduce_min": "minimum"},
    **{"reduce_prod": "prod", "reduce_or": "any", "reduce_and": "all"},
}
LOGICAL = {"and", "or", "not"}  # of truth values only


def _elementwise(operation: str) -> Rule:
    def rule(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Value:
        if operation in LOGICAL and out[0].dtype != bool:
            raise Mistake(
                f"The policy cannot be exported: it computes {operation!r} of whole numbers bit by "
                "bit. Serve it instead: sterling serve RUN"
            )
        return builder.add(operation, inputs, out[0].shape, out[0].dtype)

    return rule


def _identity(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    return inputs[0]


def _cast(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    if str(builder.value(inputs[0]).tensor.dtype) == str(out[0].dtype):
        return inputs[0]
    return builder.add("cast", inputs, out[0].shape, out[0].dtype)


def _reshape(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    if params.get("dimensions") is not None:
        raise Mistake("The policy cannot be exported: it reshapes in another order than NumPy's.")
    return builder.add("reshape", inputs[:1], out[0].shape, out[0].dtype)


def _transpose(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    axes = [int(axis) for axis in params["permutation"]]
    return builder.add("transpose", inputs, out[0].shape, out[0].dtype, axes=axes)


def _broadcast(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    """Give the input the output's number of axes, then repeat it."""
    given, shape = builder.value(inputs[0]), dimensions(out[0].shape)
    wide = [1] * len(shape)
    for axis, size in zip(params["broadcast_dimensions"], given.tensor.shape, strict=True):
        wide[axis] = size
    made: Any = inputs[0]
    if tuple(wide) != given.tensor.shape:
        if isinstance(made, Value):
            made = builder.add("reshape", [made], tuple(wide), out[0].dtype)
        else:
            made = np.asarray(made).reshape(wide)
    same = tuple(wide) == shape
    return made if same else builder.add("broadcast", [made], out[0].shape, out[0].dtype)


def _concatenate(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    axis = int(params["dimension"])
    return builder.add("concat", inputs, out[0].shape, out[0].dtype, axis=axis)


def _stack(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    axis, shape = int(params["axis"]), dimensions(out[0].shape)
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = [builder.add("reshape", [each], one, out[0].dtype) for each in inputs]
    return builder.add("concat", parts, out[0].shape, out[0].dtype, axis=axis)


def _slice_axis(builder: GraphBuilder, given: Value, axis: int, cut: tuple[int, int, int]) -> Value:
    """Return the entries ``start:stop:step`` of one axis."""
    start, stop, step = cut
    shape = list(given.tensor.shape)
    shape[axis] = math.ceil((stop - start) / step)
    how = {"axis": axis, "start": start, "stop": stop, "step": step}
    return builder.add("slice", [given], tuple(shape), given.tensor.dtype, **how)


def _slice(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    made = builder.value(inputs[0])
    starts, stops = params["start_indices"], dimensions(params["limit_indices"])
    steps = params["strides"] or [1] * len(starts)
    for axis, cut in enumerate(zip(starts, stops, steps, strict=True)):
        whole = cut == (0, made.tensor.shape[axis], 1)
        if not whole and made.tensor.shape[axis] < 0:
            raise Mistake("The policy cannot be exported: it takes a part of the batch.")
        made = made if whole else _slice_axis(builder, made, axis, cut)
    return made


def _split(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    given, axis = builder.value(inputs[0]), int(params["axis"])
    ends = np.cumsum([int(size) for size in params["sizes"]])
    cuts = zip([0, *ends[:-1]], ends, strict=True)
    return [_slice_axis(builder, given, axis, (int(a), int(b), 1)) for a, b in cuts]


def _integer_pow(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    power, shape, dtype = int(params["y"]), out[0].shape, out[0].dtype
    made = inputs[0]
    for _ in range(abs(power) - 1):
        made = builder.add("mul", [made, inputs[0]], shape, dtype)
    one = np.ones((), dtype)
    return builder.add("div", [one, made], shape, dtype) if power < 0 else made


def _square(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    return builder.add("mul", [inputs[0], inputs[0]], out[0].shape, out[0].dtype)


def _clamp(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    low, x, high = inputs
    raised = builder.add("max", [x, low], out[0].shape, out[0].dtype)
    return builder.add("min", [raised, high], out[0].shape, out[0].dtype)


def _select(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    which, cases = inputs[0], inputs[1:]
    is_truth = builder.value(which).tensor.dtype == "bool"
    if not is_truth or len(cases) != 2:
        raise Mistake("The policy cannot be exported: it selects among more than two cases.")
    return builder.add("where", [which, cases[1], cases[0]], out[0].shape, out[0].dtype)


def _reduce(operation: str) -> Rule:
    def rule(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Value:
        axes = [int(axis) for axis in params["axes"]]
        return builder.add(operation, inputs, out[0].shape, out[0].dtype, axes=axes)

    return rule


def _arg(operation: str) -> Rule:
    def rule(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Value:
        (axis,) = params["axes"]
        return builder.add(operation, inputs, out[0].shape, out[0].dtype, axis=int(axis))

    return rule


def _iota(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    """Count along an axis; numbers of the batch's rows are good for random keys alone."""
    axis, shape = int(params["dimension"]), dimensions(out[0].shape)
    if shape[axis] < 0:
        return RowNumberValue()
    lead = [shape[axis] if each == axis else 1 for each in range(len(shape))]
    row = np.arange(shape[axis], dtype=out[0].dtype).reshape(lead)
    return builder.add("broadcast", [row], out[0].shape, out[0].dtype)


def _dot_general(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Any:
    """Bring both sides into the form of a batched matrix product."""
    (left_sum, right_sum), (left_batch, right_batch) = params["dimension_numbers"]
    left, right = (builder.value(each) for each in inputs)
    dtype, count = out[0].dtype, len(left_batch)
    a = _arranged(builder, left, left_batch, left_sum, last=True)
    b = _arranged(builder, right, right_batch, right_sum, last=False)
    lead = a.tensor.shape[:count]
    shape = (*lead, a.tensor.shape[-2], b.tensor.shape[-1])
    product = builder.add("matmul", [a, b], shape, dtype)
    return _reshape_raw(builder, product, dimensions(out[0].shape))


def _arranged(builder: GraphBuilder, x: Value, batch: Any, summed: Any, *, last: bool) -> Value:
    """Return ``x`` as (batch..., free, summed), or (batch..., summed, free)."""
    shape = x.tensor.shape
    free = [axis for axis in range(len(shape)) if axis not in (*batch, *summed)]
    order = [*batch, *free, *summed] if last else [*batch, *summed, *free]
    if order != list(range(len(shape))):
        turned = tuple(shape[axis] for axis in order)
        x = builder.add("transpose", [x], turned, x.tensor.dtype, axes=[int(a) for a in order])
    sizes = [_product([shape[axis] for axis in group]) for group in (free, summed)]
    sizes = sizes if last else sizes[::-1]
    return _reshape_raw(builder, x, (*(shape[axis] for axis in batch), *sizes))


def _reshape_raw(builder: GraphBuilder, x: Value, shape: tuple[int, ...]) -> Value:
    same = x.tensor.shape == shape
    return x if same else builder.add("reshape", [x], shape, x.tensor.dtype)


def _product(sizes: list[int]) -> int:
    """Return the product of dimensions, at most one of which depends on the batch."""
    if sum(size < 0 for size in sizes) > 1:
        raise Mistake("The policy cannot be exported: it joins two axes of the batch's size.")
    return math.prod(sizes)


RULES: dict[str, Rule] = {
    **{name: _elementwise(operation) for name, operation in SAME.items()},
    **{name: _reduce(operation) for name, operation in REDUCTIONS.items()},
    **{"stop_gradient": _identity, "copy": _identity, "copy_p": _identity, "name": _identity},
    **{"convert_element_type": _cast, "reshape": _reshape, "squeeze": _reshape},
    **{"expand_dims": _reshape, "transpose": _transpose, "broadcast_in_dim": _broadcast},
    **{"concatenate": _concatenate, "stack": _stack, "slice": _slice, "split": _split},
    **{"integer_pow": _integer_pow, "square": _square, "clamp": _clamp, "select_n": _select},
    **{"argmax": _arg("argmax"), "argmin": _arg("argmin"), "iota": _iota},
    **{"dot_general": _dot_general, "conv_general_dilated": convolution},
    **{"gather": gather, "scatter": scatter, "round": _elementwise("rint")},
    **{"optimization_barrier": lambda b, x, p, o: list(x)},
}

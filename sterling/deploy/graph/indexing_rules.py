"""How JAX's gather and scatter become operations of a policy graph: the forms that indexing one
axis has."""

from __future__ import annotations

from typing import Any

import numpy as np

from sterling.deploy.graph.graph_builder import GraphBuilder, KeyValue, Value, dimensions
from sterling.types import Mistake

REMEDY = "Serve it instead: sterling serve RUN"


def gather(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Value:
    """Lower ``x[..., index, ...]``: entries of one axis at an array of indices, or one window at a
    fixed place."""
    numbers, x = params["dimension_numbers"], builder.value(inputs[0])
    fixed = not isinstance(inputs[1], (Value, KeyValue)) and np.ndim(inputs[1]) == 1
    if fixed and not numbers.operand_batching_dims:
        return _fixed_window(builder, x, inputs[1], params, out[0])
    axis = _only_axis(numbers.start_index_map, numbers.collapsed_slice_dims)
    index = builder.value(inputs[1]).tensor.shape[:-1]
    rank, own = len(x.tensor.shape), len(index)
    whole = [size for at, size in enumerate(x.tensor.shape) if at != axis]
    taken = [size for at, size in enumerate(dimensions(params["slice_sizes"])) if at != axis]
    places = (*range(axis), *range(axis + own, rank + own - 1))
    if whole != taken or tuple(numbers.offset_dims) != places or numbers.operand_batching_dims:
        raise Mistake(f"The policy cannot be exported: it gathers from several axes. {REMEDY}")
    rows = _squeezed(builder, inputs[1], index)
    return builder.add("take", [x, rows], out[0].shape, out[0].dtype, axis=axis)


def _fixed_window(builder: GraphBuilder, x: Value, at: Any, params: Any, out: Any) -> Value:
    """Return the window of ``slice_sizes`` at the place ``at``."""
    starts = dict(zip(params["dimension_numbers"].start_index_map, np.asarray(at), strict=True))
    for axis, size in enumerate(dimensions(params["slice_sizes"])):
        start, whole = int(starts.get(axis, 0)), x.tensor.shape[axis]
        if size != whole:
            start = min(max(start, 0), whole - size)
            shape = (*x.tensor.shape[:axis], size, *x.tensor.shape[axis + 1 :])
            how = {"axis": axis, "start": start, "stop": start + size, "step": 1}
            x = builder.add("slice", [x], shape, x.tensor.dtype, **how)
    return builder.add("reshape", [x], out.shape, out.dtype)


def scatter(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Value:
    """Lower ``x.at[:, k].set(y)`` for one fixed index k."""
    numbers, x, update = params["dimension_numbers"], builder.value(inputs[0]), inputs[2]
    axis = _only_axis(numbers.scatter_dims_to_operand_dims, numbers.inserted_window_dims)
    fixed = not isinstance(inputs[1], (Value, KeyValue)) and np.asarray(inputs[1]).size == 1
    if not fixed or numbers.operand_batching_dims:
        raise Mistake(f"The policy cannot be exported: it writes at changing places. {REMEDY}")
    at, shape = int(np.asarray(inputs[1]).ravel()[0]), x.tensor.shape
    one = (*shape[:axis], 1, *shape[axis + 1 :])
    parts = [builder.add("reshape", [update], one, out[0].dtype)]
    for start, stop in ((0, at), (at + 1, shape[axis])):
        if stop > start:
            cut = (*shape[:axis], stop - start, *shape[axis + 1 :])
            how = {"axis": axis, "start": start, "stop": stop, "step": 1}
            part = builder.add("slice", [x], cut, out[0].dtype, **how)
            parts.insert(len(parts) if start else 0, part)
    return builder.add("concat", parts, shape, out[0].dtype, axis=axis)


def _only_axis(mapped: Any, removed: Any) -> int:
    """Return the one axis that is indexed, and removed; raise Mistake if there are others."""
    if len(mapped) != 1 or tuple(removed) != tuple(mapped):
        raise Mistake(f"The policy cannot be exported: it indexes several axes at once. {REMEDY}")
    return int(mapped[0])


def _squeezed(builder: GraphBuilder, index: Any, shape: tuple[int, ...]) -> Any:
    """Return indices without their last axis, which has one entry."""
    if isinstance(index, Value):
        return builder.add("reshape", [index], shape, index.tensor.dtype)
    return np.asarray(index).reshape(shape)

"""How JAX's convolution becomes operations of a policy graph."""

from __future__ import annotations

from typing import Any

from sterling.deploy.graph.graph_builder import GraphBuilder, Value
from sterling.types import Mistake

REMEDY = "Serve it instead: sterling serve RUN"


def convolution(builder: GraphBuilder, inputs: list[Any], params: Any, out: list[Any]) -> Value:
    """Lower a convolution of pictures in any layout, without dilation and groups."""
    plain = (
        {*params["lhs_dilation"], *params["rhs_dilation"]} == {1}
        and params["feature_group_count"] == params["batch_group_count"] == 1
        and len(params["window_strides"]) == 2
    )
    if not plain:
        raise Mistake(
            "The policy cannot be exported: only two-dimensional convolutions without dilation and "
            f"groups are supported. {REMEDY}"
        )
    numbers, dtype = params["dimension_numbers"], out[0].dtype
    picture = _turned(builder, inputs[0], [numbers.lhs_spec[i] for i in (0, 2, 3, 1)])
    kernel = _turned(builder, inputs[1], [numbers.rhs_spec[i] for i in (2, 3, 1, 0)])
    made = [out[0].shape[numbers.out_spec[i]] for i in (0, 2, 3, 1)]
    how = {
        "strides": [int(each) for each in params["window_strides"]],
        "pads": [[int(a), int(b)] for a, b in params["padding"]],
    }
    found = builder.add("conv", [picture, kernel], made, dtype, **how)
    # axes of the output: batch, height, width, channels to where its layout has them
    place = [0] * 4
    for mine, theirs in zip((0, 1, 2, 3), (0, 2, 3, 1), strict=True):
        place[numbers.out_spec[theirs]] = mine
    return _turned(builder, found, place)


def _turned(builder: GraphBuilder, given: Any, axes: list[int]) -> Value:
    """Return an array with its axes in another order."""
    x = builder.value(given)
    if axes == sorted(axes):
        return x
    shape = tuple(x.tensor.shape[axis] for axis in axes)
    return builder.add("transpose", [x], shape, x.tensor.dtype, axes=[int(a) for a in axes])

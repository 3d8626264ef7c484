"""Lower a traced function (a jaxpr) to a policy graph.

Calls are inlined, short loops are unrolled, what depends on constants alone is computed, and every
other primitive becomes one or a few operations of the graph.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from sterling.deploy.graph.graph_builder import (
    BitsValue,
    GraphBuilder,
    KeyValue,
    RowNumberValue,
    Value,
)
from sterling.deploy.graph.primitive_rules import RULES
from sterling.types import Mistake

MAX_UNROLLED = 64  # steps of a loop
CALLS = {"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat", "custom_lin"}
CUSTOM_CALLS = {"custom_jvp_call", "custom_vjp_call", "custom_vjp_call_jaxpr"}
NORMAL = "_normal"  # the name of jax.random's jitted function
BITS = {"shift_right_logical", "or", "bitcast_convert_type"}  # from random bits to [1, 2)


def lower(jaxpr: Any, constants: list[Any], inputs: list[Any], builder: GraphBuilder) -> list[Any]:
    """Return the outputs of a jaxpr for ``inputs``: values of the graph, constants or keys.

    Raise :class:`Mistake`, which names it, for a primitive that the graph does not have.
    """
    known: dict[Any, Any] = {}
    known.update(zip(jaxpr.constvars, constants, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        outputs = _lower_equation(eqn, [read(each) for each in eqn.invars], builder)
        known.update(zip(eqn.outvars, outputs, strict=True))
    return [read(each) for each in jaxpr.outvars]


def _lower_equation(eqn: Any, inputs: list[Any], builder: GraphBuilder) -> list[Any]:
    """Return one equation's outputs."""
    params = eqn.params
    if str(params.get("name", "")) == NORMAL and isinstance(inputs[0], KeyValue):
        return [builder.draw("normal", eqn.outvars[0].aval)]
    found = _lower_nested(eqn, inputs, builder)
    if found is not None:
        return found
    if any(map(_is_key, inputs)) and all(_is_key(x) or _is_constant(x) for x in inputs):
        return _lower_random(eqn, inputs, builder)
    if all(map(_is_constant, inputs)) and _has_fixed_shapes(eqn):
        made = eqn.primitive.bind(*map(jnp.asarray, inputs), **params)
    else:
        made = _rule(eqn.primitive.name)(
            builder, inputs, params, [each.aval for each in eqn.outvars]
        )
    return list(made) if isinstance(made, (list, tuple)) else [made]


def _rule(name: str) -> Any:
    """Return how a primitive is lowered; raise Mistake, which names it, if that is not known."""
    if name not in RULES:
        raise Mistake(
            f"The policy cannot be exported: it uses JAX's operation {name!r}, which exported "
            "files do not have. Serve it instead: sterling serve RUN"
        )
    return RULES[name]


def _lower_nested(eqn: Any, inputs: list[Any], builder: GraphBuilder) -> list[Any] | None:
    """Return the outputs of an equation that calls other jaxprs; None if it calls none."""
    name, params = eqn.primitive.name, eqn.params
    if name == "scan":
        return _unroll(eqn, inputs, builder)
    if name == "cond" and _is_constant(inputs[0]):
        return _lower_call(params["branches"][int(inputs[0])], inputs[1:], builder)
    if name in CALLS or name in CUSTOM_CALLS:
        inner = params.get("jaxpr", params.get("call_jaxpr", params.get("fun_jaxpr")))
        return _lower_call(inner, inputs, builder)
    return None


def _lower_call(inner: Any, inputs: list[Any], builder: GraphBuilder) -> list[Any]:
    """Inline a call of a jaxpr, closed or open."""
    if hasattr(inner, "jaxpr"):
        return lower(inner.jaxpr, list(inner.consts), inputs, builder)
    return lower(inner, [], inputs, builder)


def _unroll(eqn: Any, inputs: list[Any], builder: GraphBuilder) -> list[Any]:
    """Return the outputs of a ``scan`` of few steps, one after another."""
    params = eqn.params
    length, fixed, carried = (int(params[k]) for k in ("length", "num_consts", "num_carry"))
    if length > MAX_UNROLLED:
        raise Mistake(
            f"The policy cannot be exported: it has a loop of {length} steps, and at most "
            f"{MAX_UNROLLED} are supported. Serve it instead: sterling serve RUN"
        )
    constants, carry = inputs[:fixed], inputs[fixed : fixed + carried]
    rows, found = inputs[fixed + carried :], []
    for step in range(length)[:: -1 if params["reverse"] else 1]:
        row = [_entry(each, step, builder) for each in rows]
        made = _lower_call(params["jaxpr"], [*constants, *carry, *row], builder)
        carry = made[:carried]
        found.append(made[carried:])
    found = found[:: -1 if params["reverse"] else 1]
    stacked = [
        RULES["stack"](builder, list(parts), {"axis": 0}, [out.aval])
        for parts, out in zip(zip(*found, strict=True), eqn.outvars[carried:], strict=True)
    ]
    return [*carry, *stacked]


def _entry(each: Any, step: int, builder: GraphBuilder) -> Any:
    """Return one entry of the leading axis."""
    if isinstance(each, KeyValue):
        return each
    if _is_constant(each):
        return each[step]
    shape = each.tensor.shape
    how = {"axis": 0, "start": step, "stop": step + 1, "step": 1}
    part = builder.add("slice", [each], (1, *shape[1:]), each.tensor.dtype, **how)
    return builder.add("reshape", [part], shape[1:], each.tensor.dtype)


def _lower_random(eqn: Any, inputs: list[Any], builder: GraphBuilder) -> list[Any]:
    """Return what an equation computes from random keys or numbers of rows alone. Bits become
    uniform numbers, an input of the policy, where 1 is subtracted from numbers in [1, 2)."""
    name = eqn.primitive.name
    if all(isinstance(x, RowNumberValue) for x in inputs if _is_key(x)):
        return [RowNumberValue() for _ in eqn.outvars]
    if is_unit_draw(name, isinstance(inputs[0], BitsValue), eqn):
        return [builder.draw("uniform", eqn.outvars[0].aval)]
    bits = name == "random_bits" or (name in BITS and isinstance(inputs[0], BitsValue))
    return [BitsValue() if bits else KeyValue() for _ in eqn.outvars]


def is_unit_draw(name: str, from_bits: bool, eqn: Any) -> bool:
    """Whether an equation is the last one of drawing float32 numbers from [0, 1)."""
    return bool(name == "sub" and from_bits and eqn.outvars[0].aval.dtype == np.float32)


def _is_key(each: Any) -> bool:
    return isinstance(each, KeyValue)


def _is_constant(each: Any) -> bool:
    return not isinstance(each, (KeyValue, Value))


def _has_fixed_shapes(eqn: Any) -> bool:
    """Whether no output depends on the batch size."""
    shapes = [getattr(each.aval, "shape", ()) for each in eqn.outvars]
    return all(isinstance(size, (int, np.integer)) for shape in shapes for size in shape)

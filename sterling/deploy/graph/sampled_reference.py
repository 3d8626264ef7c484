"""Sample actions as the algorithm does, and record the random numbers that it drew."""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend import core

from sterling.deploy.graph.jaxpr_lowering import BITS, CALLS, CUSTOM_CALLS, NORMAL, is_unit_draw

Drawn = list[np.ndarray]


def evaluate_with_draws(
    jaxpr: Any, constants: list[Any], inputs: list[Any], drawn: Drawn
) -> list[Any]:
    """Return the outputs of a jaxpr; append every normal number, and every uniform one between 0
    and 1, that it draws to ``drawn``."""
    known: dict[Any, Any] = {}
    known.update(zip(jaxpr.constvars, constants, strict=True))
    known.update(zip(jaxpr.invars, inputs, strict=True))
    bits: set[Any] = set()  # variables that hold random bits, or numbers made of them

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        made = _evaluated(eqn, [read(each) for each in eqn.invars], drawn)
        known.update(zip(eqn.outvars, made, strict=True))
        name, first = eqn.primitive.name, eqn.invars[0] if eqn.invars else None
        from_bits = not isinstance(first, core.Literal) and first in bits
        if is_unit_draw(name, from_bits, eqn):
            drawn.append(np.asarray(made[0]))
        elif name == "random_bits" or (name in BITS and from_bits):
            bits |= set(eqn.outvars)
    return [read(each) for each in jaxpr.outvars]


def _evaluated(eqn: Any, given: list[Any], drawn: Drawn) -> list[Any]:
    """Return one equation's outputs."""
    name, params = eqn.primitive.name, eqn.params
    if str(params.get("name", "")) == NORMAL:
        (made,) = eqn.primitive.bind(*given, **params)
        drawn.append(np.asarray(made))
        return [made]
    if name in CALLS or name in CUSTOM_CALLS:
        inner = params.get("jaxpr", params.get("call_jaxpr", params.get("fun_jaxpr")))
        consts = list(getattr(inner, "consts", []))
        return evaluate_with_draws(getattr(inner, "jaxpr", inner), consts, given, drawn)
    made = eqn.primitive.bind(*given, **params)
    return list(made) if eqn.primitive.multiple_results else [made]

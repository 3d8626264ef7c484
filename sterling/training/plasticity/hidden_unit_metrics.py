"""Metrics of hidden units: the share of dormant ones, and the rank of hidden layers.

    score     s_i = E|h_i| / mean_k E|h_k|    of unit i among the units k of its layer
    dormant   the share of hidden units with s_i <= 0.025 (Sokar 2023, arXiv:2302.12902, eq. 1)
    rank      (sum_j l_j)^2 / sum_j l_j^2     l_j the eigenvalues of cov(h) in a last hidden layer

h are the outputs of a layer's activation on a batch of observations, in all networks that ``act``
(``policy``) and ``value`` (``value``) use. The rank is the participation ratio, which needs no
decomposition: n if h varies equally in n directions. It is the mean over the networks' last hidden
layers, divided by their units. Only hidden layers of nets/mlp.py are seen, and convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core
from jaxtyping import Array, Float, Key, PyTree

from sterling.nets.mlp import CHANNELS, HIDDEN, LAST_HIDDEN
from sterling.types import Mistake, Record

THRESHOLD = 0.025  # score up to which a unit is dormant
ROWS = 256  # observations of a batch that are measured
MARKS = (HIDDEN, LAST_HIDDEN, CHANNELS)


def hidden_unit_metrics(
    algorithm: Any, state: PyTree, batch: Record, key: Key[Array, ""]
) -> dict[str, Float[Array, ""]]:
    """Return ``plasticity/policy_dormant``, ``plasticity/policy_rank`` and the same of ``value``,
    measured on the first 256 observations of a batch. Raises :class:`Mistake` if the networks have
    no hidden layers."""
    axes = batch.mask.ndim
    obs = jax.tree.map(lambda x: x.reshape(-1, *x.shape[axes:])[:ROWS], batch.obs)
    rows = min(batch.mask.size, ROWS)
    uses = {
        "policy": lambda state, obs: algorithm.act(state, obs, key, False),
        "value": algorithm.value,
    }
    metrics = {}
    for name, use in uses.items():
        found = hidden_outputs(use, state, obs)
        if not found:
            continue
        layers = [(mark, as_members(x, mark, rows)) for mark, x in found]
        ranks = [rank_share(x) for mark, x in layers if mark == LAST_HIDDEN]
        metrics[f"plasticity/{name}_dormant"] = dormant_share([x for _, x in layers])
        if ranks:
            metrics[f"plasticity/{name}_rank"] = jnp.mean(jnp.stack(ranks))
    if not metrics:
        raise Mistake("plasticity=units: these networks have no hidden layers. Leave out units.")
    return metrics


def dormant_share(
    layers: Sequence[Float[Array, "_ _ _"]],
) -> Float[Array, ""]:
    """Return the share of dormant units among all units of all layers."""
    dormant, units = jnp.zeros(()), 0
    for x in layers:
        size = jnp.mean(jnp.abs(x), 1)
        score = size / jnp.maximum(jnp.mean(size, -1, keepdims=True), 1e-9)
        dormant += jnp.sum(score <= THRESHOLD).astype(jnp.float32)
        units += size.size
    return dormant / units


def rank_share(x: Float[Array, "member row units"]) -> Float[Array, ""]:
    """Return the participation ratio of a layer's outputs, divided by its units; the mean over
    members."""
    x = x - jnp.mean(x, 1, keepdims=True)
    second = jnp.einsum("mri,mrj->mij", x, x)
    trace = jnp.trace(second, axis1=1, axis2=2)
    squares = jnp.sum(jnp.square(second), (1, 2))
    return jnp.mean(jnp.square(trace) / jnp.maximum(squares, 1e-12)) / x.shape[-1]


def as_members(x: Array, mark: str, rows: int) -> Float[Array, "member row units"]:
    """Return a layer's outputs with an axis of members: several networks of one shape are applied
    by ``vmap``, which may put their axis before or behind that of rows. A unit of a convolution is
    a channel, and its places are rows."""
    if mark == CHANNELS or x.ndim == 2:
        return x.reshape(1, -1, x.shape[-1])
    x = x.reshape(-1, *x.shape[-2:])
    return x if x.shape[1] == rows else jnp.moveaxis(x, 1, 0)


def hidden_outputs(function: Callable[..., Any], *args: Any) -> list[tuple[str, Array]]:
    """Return the marked values that ``function(*args)`` computes, with their marks, in order. Not
    those inside loops and branches."""
    flat, form = jax.tree.flatten(args)
    traced = jax.make_jaxpr(lambda *flat: function(*jax.tree.unflatten(form, flat)))(*flat)
    found: list[tuple[str, Array]] = []
    _evaluate(traced.jaxpr, traced.consts, flat, found)
    return found


def _evaluate(
    jaxpr: Any, consts: Sequence[Any], args: Sequence[Any], found: list[tuple[str, Array]]
) -> list[Any]:
    """Evaluate a program and add the values with a mark to ``found``; return its results."""
    values: dict[Any, Any] = {}
    values.update(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, core.Literal) else values[variable]

    for equation in jaxpr.eqns:
        inputs = [read(variable) for variable in equation.invars]
        inner = equation.params.get("jaxpr") or equation.params.get("call_jaxpr")
        name = equation.primitive.name
        if name in ("jit", "pjit", "custom_jvp_call", "custom_vjp_call") and inner is not None:
            results = _evaluate(inner.jaxpr, inner.consts, inputs, found)
        else:
            params = equation.primitive.get_bind_params(equation.params)
            results = equation.primitive.bind(*inputs, **params)
            results = results if equation.primitive.multiple_results else [results]
        if name == "name" and equation.params["name"] in MARKS:
            found.append((equation.params["name"], results[0]))
        values.update(zip(equation.outvars, results, strict=True))
    return [read(variable) for variable in jaxpr.outvars]

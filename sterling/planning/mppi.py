"""Model predictive path integral control over sequences of actions (Williams 2015,
arXiv:1509.01149), as TD-MPC2 plans (Hansen 2024, arXiv:2310.16828, appendix D).

    for i < iterations:   a_j ~ N(mu, sigma^2), clipped to [-1, 1], beside the guided sequences
                          e   = the ``elites`` sequences of the highest worth
                          w   = softmax(temperature * worth(e))
                          mu  = sum_j w_j e_j,   sigma = sqrt(sum_j w_j (e_j - mu)^2), bounded

The cross-entropy method is the same with equal weights, temperature 0, and executes mu. Worths are
what a model expects of sequences; the planner knows no model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.types import Mistake

LOWEST = -1e30  # the worth of sequences whose worth is not a number, or infinite

Number = Float[Array, ""] | float
Worth = Callable[[Float[Array, "sample ... time n"]], Float[Array, "sample ..."]]


class Plan(NamedTuple):
    """What a search found; the leading axes are those of the states that it plans for."""

    action: Float[Array, "... n"]  # first one of an elite sequence, drawn by its weight
    mean: Float[Array, "... time n"]
    std: Float[Array, "... time n"]


def mppi(
    worth: Worth,
    before: Float[Array, "... time n"],
    key: Key[Array, ""],
    *,
    iterations: int,
    samples: int,
    elites: int,
    temperature: Number,
    std: tuple[Number, Number],
    guided: Float[Array, "guide ... time n"] | None = None,
) -> Plan:
    """Return the plan that ``iterations`` rounds of ``samples`` sequences each find.

    The mean begins at ``before`` (:func:`warm_start`; zeros without a plan), the deviation at the
    higher number of ``std``, its bounds. ``worth`` gets sequences ``(sample, ..., time, n)`` of
    numbers in [-1, 1]. ``guided`` sequences, such as a policy's, are tried in every round. Raises
    :class:`Mistake` for more elites than sequences.
    """
    count = samples + (0 if guided is None else len(guided))
    if not 1 <= elites <= count:
        raise Mistake(f"of {count} sequences {elites} cannot be elites. Lower elites.")

    def improve(plan: Plan, key: Key[Array, ""]) -> tuple[Plan, None]:
        noise = jax.random.normal(random_keys.fold(key, "noise"), (samples, *before.shape))
        tried = jnp.clip(plan.mean[None] + plan.std[None] * noise, -1.0, 1.0)
        tried = tried if guided is None else jnp.concatenate([guided, tried])
        found = worth(tried)
        found = jnp.moveaxis(jnp.where(jnp.isfinite(found), found, LOWEST), 0, -1)
        highest, index = jax.lax.top_k(found, elites)
        chosen = _take(tried, index)
        logits = temperature * highest
        weight = jnp.moveaxis(jax.nn.softmax(logits), -1, 0)[..., None, None]
        mean = jnp.sum(weight * chosen, 0)
        spread = jnp.sqrt(jnp.sum(weight * jnp.square(chosen - mean[None]), 0))
        drawn = jax.random.categorical(random_keys.fold(key, "elite"), logits)
        action = _take(chosen, drawn[..., None])[0, ..., 0, :]
        return Plan(action, mean, jnp.clip(spread, *std)), None

    begun = Plan(before[..., 0, :], before, jnp.full(before.shape, std[1]))
    keys = random_keys.split(key, "iteration", iterations)
    return jax.lax.scan(improve, begun, keys)[0]


def warm_start(mean: Float[Array, "... time n"]) -> Float[Array, "... time n"]:
    """Return where the next step's search begins: the plan without its first action, and 0, the
    middle of the bounds, as its last."""
    return jnp.concatenate([mean[..., 1:, :], jnp.zeros_like(mean[..., :1, :])], -2)


def _take(
    sequences: Float[Array, "sample ... time n"], index: Array
) -> Float[Array, "some ... time n"]:
    """Return the sequences at ``index``, ``(..., some)``."""
    return jnp.take_along_axis(sequences, jnp.moveaxis(index, -1, 0)[..., None, None], 0)

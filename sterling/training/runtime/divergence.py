"""Stop seeds that diverge: their parameters become NaN, infinite or far too large."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool

from sterling.training.agent import Agent

DIVERGENCE_LIMIT = 1e12  # no useful parameter is this large
# parts of the names of leaves that may be larger: as large as rewards, or gradients squared
STATISTICS_NAMES = ("optimiser", "normaliser", "statistics")


def stop_diverged_seeds(
    before: Agent, after: Agent, alive: Bool[np.ndarray, "seed"], limit: float = DIVERGENCE_LIMIT
) -> tuple[Agent, Bool[np.ndarray, "seed"]]:
    """Stop the seeds that have diverged between ``before`` and ``after``; others stay bit-equal.

    A seed has diverged if an element of a float leaf of its state *changed since ``before``* and is
    now NaN, infinite, or at least ``limit`` in size. An optimiser's moments and a normaliser's
    statistics may have any finite size. Elements that did not change are not checked: an infinite
    constant, or a sentinel such as a best score of -inf, is legitimate. (NaNs present from the
    start are found as soon as they reach a learned number, the optimiser's moments at the latest.)

    Return the agent and the seeds still alive. In the agent, diverged seeds and seeds that were not
    ``alive`` have their state of ``before``; if all seeds are alive, it is ``after`` itself. Pass
    agents that are on the host: then nothing is compiled, and each agent is copied only once.
    """
    alive = np.asarray(alive) & _healthy_seeds(before.state, after.state, len(alive), limit)
    if alive.all():
        return after, alive
    old, new = jax.device_get((before.state, after.state))

    def choose(good: Any, made: Any) -> Any:
        if not isinstance(made, np.ndarray):
            return made
        return jnp.asarray(np.where(alive.reshape(-1, *(1,) * (made.ndim - 1)), made, good))

    state = jax.tree.map(choose, old, new)
    return eqx.tree_at(lambda agent: agent.state, after, state), alive


def _healthy_seeds(old: Any, new: Any, seeds: int, limit: float) -> Bool[np.ndarray, "seed"]:
    """Return which seeds are healthy: changed elements are finite, and learned ones below
    ``limit``."""
    sound = np.ones(seeds, bool)
    for index, pair in enumerate(zip(jax.tree.leaves(old), jax.tree.leaves(new), strict=True)):
        kind = getattr(pair[1], "dtype", None)
        if kind is None or not jnp.issubdtype(kind, jnp.inexact):
            continue
        # half-precision floats cannot represent the limit
        was, now = (np.asarray(x, np.float32 if kind.itemsize < 4 else kind) for x in pair)
        good = (np.abs(now) < limit) | (now == was) | (np.isnan(now) & np.isnan(was))
        if not good.all():
            good |= _is_statistic(new, index) & np.isfinite(now)
            sound &= good.reshape(seeds, -1).all(1)
    return sound


def _is_statistic(state: Any, index: int) -> bool:
    """Whether a leaf's name says that it is a statistic, which may be of any size."""
    path, _ = jax.tree_util.tree_leaves_with_path(state)[index]
    return any(word in jax.tree_util.keystr(path) for word in STATISTICS_NAMES)


def describe_failures(seeds: Iterable[int], step: int, update: int) -> dict[str, Any]:
    """Return what is said of seeds that diverged after ``step`` steps and ``update`` updates."""
    reason = "its parameters became non-finite or exploded; its last good state is kept"
    return {str(seed): {"step": step, "update": update, "reason": reason} for seed in seeds}

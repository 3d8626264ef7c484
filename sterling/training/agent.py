"""An agent: one algorithm's state for every seed, and how the seed axis is run."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Key, PyTree

from sterling import keys as named
from sterling.types import Action, Algorithm, Obs, Record, Signals, Spec, Transitions


def over_seeds(strategy: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a one-seed function over a leading seed axis.

    ``vmap`` batches the seeds into one set of operations; ``map`` runs them one after another
    inside the program, which makes N seeds bit-equal to the same seeds alone.
    """
    if strategy == "vmap":
        return jax.vmap(function)
    return lambda *args: jax.lax.map(lambda each: function(*each), args)


class Agent(eqx.Module):
    """Every leaf of ``state`` has a leading seed axis."""

    state: PyTree
    algorithm: Algorithm = eqx.field(static=True)
    needs: Any = eqx.field(static=True)
    strategy: str = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        algorithm: Algorithm,
        keys: Key[Array, "seed"],
        spec: Spec,
        config: Any,
        strategy: str,
        *,
        own: Any = None,
    ) -> Agent:
        """A fresh agent per key.

        ``own`` gives each its own numbers: ``config`` again, with every float field an array
        ``(seed,)``. Experience is asked for by ``config`` in either case.
        """
        if own is None:
            state = over_seeds(strategy, lambda key: algorithm.init(key, spec, config))(keys)
        else:
            init = over_seeds(strategy, lambda key, config: algorithm.init(key, spec, config))
            state = init(keys, own)
        return cls(state, algorithm, algorithm.needs(config), strategy)

    @eqx.filter_jit
    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Actions for ``(seed, env, ...)`` observations, and what the learner wants recorded."""
        act = partial(self.algorithm.act, explore=explore)
        return over_seeds(self.strategy, act)(self.state, obs, keys)

    def learn(self, batch: Record, keys: Key[Array, "seed"]) -> tuple[Agent, Signals]:
        """One iteration's learning: a rollout, or several batches of transitions in turn."""
        several = isinstance(self.needs, Transitions)
        learn = partial(_several, self.algorithm) if several else self.algorithm.learn
        state, signals = over_seeds(self.strategy, learn)(self.state, batch, keys)
        return eqx.tree_at(lambda agent: agent.state, self, state), signals


def _several(algorithm: Algorithm, state: Any, batches: Record, key: Key[Array, ""]) -> Any:
    """Learn from ``(update, batch, ...)`` transitions, one update after another."""

    def update(state: Any, each: tuple[Record, Array]) -> tuple[Any, Signals]:
        batch, key = each
        return algorithm.learn(state, batch, key)

    count = batches.reward.shape[0]
    state, signals = jax.lax.scan(update, state, (batches, named.deal(key, "update", count)))
    metrics = {name: value.mean() for name, value in signals.metrics.items()}
    return state, Signals(metrics, signals.samples)

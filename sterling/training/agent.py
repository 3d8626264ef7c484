"""An agent: one algorithm's state for every seed, and how the seed axis is run."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Collection
from functools import partial
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, PyTree

from sterling import algorithms, unseen
from sterling import keys as named
from sterling.actor import Past
from sterling.algorithms.outside import name_of
from sterling.equations.soft import LEAST
from sterling.experience.draws import Draws, keys_of
from sterling.seeds import changing_seeds, over_seeds
from sterling.training.footprint import check_networks, check_shapes
from sterling.training.settings import Settings
from sterling.training.updates import Learned, Updates, check_metrics
from sterling.types import (
    Action,
    Algorithm,
    Mistake,
    Obs,
    Record,
    Spec,
)


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
        ``(seed,)``. Experience is asked for by ``config`` in either case. What only critics see
        (``spec.unseen``) is kept from the algorithm here, for all who call it by the agent.
        """
        algorithm = unseen.blinded(algorithm, spec.unseen)
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
        act = partial(cast(Any, self.algorithm).act, explore=explore)
        return over_seeds(self.strategy, act)(self.state, obs, keys)

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> PyTree:
        """A memory of nothing for ``envs`` environments of every seed, leaves ``(seed, env, ...)``;
        None where the algorithm acts by what it sees alone."""
        begin = getattr(self.algorithm, "memory", None)
        if begin is None:
            return None

        def of_seed(state: Any, key: Key[Array, ""]) -> PyTree:
            return begin(state, envs, key)

        return over_seeds(self.strategy, of_seed)(self.state, keys)

    @eqx.filter_jit
    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, PyTree, dict[str, Array]]:
        """Actions by what is remembered, the memory from now on, and what is to be recorded."""
        recall = partial(cast(Any, self.algorithm).recall, explore=explore)
        return over_seeds(self.strategy, recall)(self.state, past, obs, keys)

    def imagine(self, obs: Obs, valid: Bool[Array, "seed branch"], keys: Key[Array, "seed"]) -> Any:
        """What might follow observations ``(seed, branch, ...)``: a Record ``(seed, time, branch,
        ...)``; of those that are not ``valid`` nothing is learned."""
        imagine = cast(Any, self.algorithm).imagine
        return over_seeds(self.strategy, imagine)(self.state, obs, valid, keys)

    def needs_no_memory(self, remedy: str) -> None:
        """Raises :class:`Mistake`, with a ``remedy``, where one observation is not enough to act
        by."""
        if hasattr(self.algorithm, "memory"):
            fact = f"{self._name} acts by what it remembers of its episode, not by one observation"
            raise Mistake(f"{fact}; {remedy}")

    def action_value(self, obs: Obs, action: Action) -> Float[Array, "seed env"]:
        """The critic's value of actions ``(seed, env, ...)``; Mistake where there is none."""
        judge = getattr(self.algorithm, "action_value", None)
        if judge is None:
            raise Mistake(f"{self._name} gives no action values; let sac, td3, td3bc or iql learn")
        return over_seeds(self.strategy, judge)(self.state, obs, action)

    def needs_advantage(self) -> None:
        """Raises :class:`Mistake` where rows cannot be scored without being learned from."""
        if not hasattr(self.algorithm, "advantage"):
            raise Mistake(
                f"{self._name} has no advantage(state, batch), by which levels are scored here; "
                "let ppo or recurrent-ppo learn, or use sources=plr"
            )

    def advantage(self, rows: Record) -> Float[Array, "seed time env"]:
        """The learner's advantages of a rollout's rows, of which nothing is learned."""
        return over_seeds(self.strategy, cast(Any, self.algorithm).advantage)(self.state, rows)

    @property
    def _name(self) -> str:
        return name_of(self.algorithm)

    def learn(
        self, draws: Draws, keys: dict[str, Key[Array, "seed"]], iteration: Int[Array, ""]
    ) -> tuple[Agent, PyTree, dict[str, Array]]:
        """One iteration's learning from every feed that is due: the agents, what the source is to
        be told, and metrics ``(seed,)``. ``keys`` are those of "draw" and of "learn"."""
        feeds = self.needs.feeds
        chances = [draws.chances(feed, keys_of(feed, keys["draw"])) for feed in feeds]

        def learn(learned: Learned, seed: Array, chances: Any, key: Key[Array, ""]) -> Any:
            metrics: dict[str, Array] = {}
            for feed, chance in zip(feeds, chances, strict=True):
                own = named.fold(key, feed.name) if feed.name else key
                updates = Updates(self.algorithm, feed, draws, seed)
                learned, found = updates(learned, chance, own, iteration)
                check_metrics(feed, feeds, found)
                metrics |= found
            return learned, metrics

        seeds = jnp.arange(len(keys["learn"]), dtype=jnp.int32)
        # where all that was lived is learned from at once, the other form cost a twentieth (PPO)
        form = over_seeds if all(feed.whole for feed in feeds) else changing_seeds
        whole = form(self.strategy, learn)
        learned, metrics = whole((self.state, draws.heard), seeds, chances, keys["learn"])
        state, heard = learned
        return eqx.tree_at(lambda agent: agent.state, self, state), heard, metrics

    def with_fields(self, config: Any, names: Collection[str]) -> Agent:
        """The same agents with the fields ``names`` as ``config`` has them, and what they need by
        it; where a field is what a learned number began with (``alpha`` of ``log_alpha``), that
        begins anew.

        Raises :class:`Mistake` where the State keeps no Config.
        """
        state, count = self.state, len(jax.tree.leaves(self.state)[0])
        if names and not hasattr(state, "config"):
            raise Mistake(f"{self._name} keeps no config in its State: no field can change")

        def number(path: Any, value: float) -> Array:
            before = getattr(state.config, path[0].name)
            changed = path[0].name in names or before is None
            return jnp.full(count, value, jnp.float32) if changed else before

        if names:
            made = jax.tree_util.tree_map_with_path(number, config)
            state = eqx.tree_at(operator.attrgetter("config"), state, made)
        for name in (name for name in names if hasattr(state, f"log_{name}")):
            learned = jnp.log(jnp.maximum(getattr(state.config, name), LEAST))
            state = eqx.tree_at(operator.attrgetter(f"log_{name}"), state, learned)
        return dataclasses.replace(self, state=state, needs=self.algorithm.needs(config))


def check_agents(name: str, algorithm: Any, spec: Spec) -> None:
    """Raises :class:`Mistake` where a world has several agents and the algorithm knows of one."""
    if spec.agents is not None and not getattr(algorithm, "several_agents", False):
        count = len(spec.agents)
        raise Mistake(
            f"{name} learns for one agent and this environment has {count}; use ippo or mappo"
        )


def create_agent(
    settings: Settings, spec: Spec, seeds: Int[Array, "seed"] | None = None, own: Any = None
) -> Agent:
    """A fresh agent for every seed, in one program; ``own`` as in ``Agent.create``."""
    algorithm: Any = algorithms.find(settings.algorithm)
    seeds = jnp.asarray(settings.seeds, jnp.int32) if seeds is None else seeds

    @jax.jit
    def create(seeds: Int[Array, "seed"], own: Any) -> Agent:
        start = named.at(seeds, "agent", 0)
        return Agent.create(algorithm, start, spec, settings.config, settings.inside, own=own)

    check_agents(settings.algorithm, algorithm, spec)
    check_networks(settings)
    check_shapes(settings, jax.eval_shape(create, seeds, own).state)
    return create(seeds, own)

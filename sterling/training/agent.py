"""The agent: an algorithm's state for every seed, and its functions over the seed axis."""

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

from sterling import algorithms
from sterling import random_keys as named
from sterling.actor import Past
from sterling.algorithms.unplanned_algorithm import PRIOR, UnplannedAlgorithm
from sterling.algorithms.user_algorithm import short_name
from sterling.equations.soft_values import MIN_ALPHA
from sterling.experience.batch_draws import Draws
from sterling.experience.stored_rows import RowsToStore
from sterling.needs.feed import DREAM
from sterling.nets.encoding.encoder_description import check_choice_is_used
from sterling.seed_axis import over_seeds, over_seeds_in_place
from sterling.training.blinded_algorithm import hide_unseen
from sterling.training.config.settings import Settings
from sterling.training.field_schedules import FieldSchedules
from sterling.training.phases.phase_sequence import plan_phases
from sterling.training.plasticity.network_upkeep import Upkeep, plan_upkeep
from sterling.training.runtime.memory_footprint import check_agent_memory, check_network_memory
from sterling.training.updates import FeedUpdates, StateAndHeard, check_metrics, presample
from sterling.types import (
    Action,
    Algorithm,
    AnyNeeds,
    Mistake,
    Obs,
    Record,
    Spec,
)

# what the source hears from learning, and what is to be stored in its rows, by names of feeds
Heard = tuple[PyTree, dict[str, RowsToStore]]


class Agent(eqx.Module):
    """An algorithm with its state; every leaf of ``state`` has a leading seed axis."""

    state: PyTree
    algorithm: Algorithm = eqx.field(static=True)
    needs: Any = eqx.field(static=True)
    strategy: str = eqx.field(static=True)
    schedules: FieldSchedules | None = None  # of fields that change in every iteration
    plasticity: Upkeep | None = eqx.field(static=True, default=None)  # of the networks

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
        """Return new agents, one per key.

        ``own`` gives each seed its own numbers: ``config`` with every float field an array
        ``(seed,)``. The needs come from ``config`` in either case. The algorithm is wrapped here so
        that it does not get critic-only entries (``spec.unseen``); this holds for all callers.
        """
        algorithm = hide_unseen(algorithm, spec)
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
        """Return actions for ``(seed, env, ...)`` observations, and extras to record."""
        act = partial(cast(Any, self.algorithm).act, explore=explore)
        return over_seeds(self.strategy, act)(self.state, obs, keys)

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> PyTree:
        """Return an empty memory for ``envs`` environments of every seed, leaves ``(seed, env,
        ...)``; None if the algorithm acts from the current observation alone."""
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
        """Return actions chosen with the memory, the new memory, and extras to record."""
        recall = partial(cast(Any, self.algorithm).recall, explore=explore)
        return over_seeds(self.strategy, recall)(self.state, past, obs, keys)

    @property
    def has_prior(self) -> bool:
        """Whether the algorithm can act without planning."""
        return hasattr(self.algorithm, PRIOR)

    @property
    def forgetful(self) -> bool:
        """Whether every action may be chosen with an empty memory, such as a planner's plan."""
        return bool(getattr(self.algorithm, "forgetful", False))

    def without_planning(self) -> Agent:
        """Return agents that act by the algorithm's ``prior``; unchanged ones if it has none."""
        if not self.has_prior:
            return self
        return dataclasses.replace(self, algorithm=cast(Any, UnplannedAlgorithm(self.algorithm)))

    def imagine(
        self, rows: Record, valid: Bool[Array, "seed branch"], keys: Key[Array, "seed"]
    ) -> Any:
        """Return model rollouts from real rows ``(seed, branch, ...)``: a Record ``(seed, time,
        branch, ...)``. Branches that are not ``valid`` are not learned from."""
        imagine = cast(Any, self.algorithm).imagine
        return over_seeds(self.strategy, imagine)(self.state, rows, valid, keys)

    def check_memoryless(self, remedy: str) -> None:
        """Raise :class:`Mistake`, which ends with ``remedy``, if the algorithm needs a memory."""
        if hasattr(self.algorithm, "memory"):
            fact = f"{self._name} acts with a memory of its episode, not from one observation"
            raise Mistake(f"{fact}; {remedy}")

    def action_value(self, obs: Obs, action: Action) -> Float[Array, "seed env"]:
        """Return the critic's values of actions ``(seed, env, ...)``; raise Mistake if the
        algorithm has no such critic."""
        judge = getattr(self.algorithm, "action_value", None)
        if judge is None:
            raise Mistake(f"{self._name} has no action values. Use sac, td3, td3bc or iql.")
        return over_seeds(self.strategy, judge)(self.state, obs, action)

    def check_has_advantage(self) -> None:
        """Raise :class:`Mistake` if the algorithm has no function ``advantage``."""
        if not hasattr(self.algorithm, "advantage"):
            raise Mistake(
                f"{self._name} has no advantage(state, batch), which this source needs to score "
                "levels. Use ppo or recurrent-ppo, or sources=plr."
            )

    def advantage(self, rows: Record) -> Float[Array, "seed time env"]:
        """Return the advantages of a rollout's rows, without learning from them."""
        return over_seeds(self.strategy, cast(Any, self.algorithm).advantage)(self.state, rows)

    @property
    def _name(self) -> str:
        return short_name(self.algorithm)

    def learn(
        self, draws: Draws, keys: dict[str, Key[Array, "seed"]], iteration: Int[Array, ""]
    ) -> tuple[Agent, Heard, dict[str, Array]]:
        """Make one iteration's updates from every feed that is due. Return the agents, what the
        source hears from them, and metrics ``(seed,)``. ``keys`` has the keys "draw" and "learn".
        """
        feeds = self.needs.feeds
        chances = [presample(draws, feed, keys["draw"], iteration) for feed in feeds]
        measured = self.plasticity is not None and self.plasticity.units

        def learn(learned: StateAndHeard, seed: Array, chances: Any, key: Key[Array, ""]) -> Any:
            metrics: dict[str, Array] = {}
            stored: dict[str, RowsToStore] = {}
            for feed, chance in zip(feeds, chances, strict=True):
                own = named.fold(key, feed.name) if feed.name else key
                updates = FeedUpdates(self.algorithm, feed, draws, seed, measured)
                learned, (found, rows) = updates(learned, chance, own, iteration)
                check_metrics(feed, feeds, found)
                metrics |= found
                stored |= {} if rows is None else {feed.name: rows}
            if self.plasticity is not None:
                state = self.plasticity.renewed(self.algorithm, learned[0], iteration, key)
                learned = state, learned[1]
            return learned, (metrics, stored)

        seeds = jnp.arange(len(keys["learn"]), dtype=jnp.int32)
        # if everything collected is one batch, changing in place cost PPO a twentieth more time
        form = over_seeds if all(feed.whole for feed in feeds) else over_seeds_in_place
        whole = form(self.strategy, learn)
        begun = self.state, draws.feedback
        (state, heard), (metrics, stored) = whole(begun, seeds, chances, keys["learn"])
        return eqx.tree_at(lambda agent: agent.state, self, state), (heard, stored), metrics

    def with_schedules(
        self, schedules: FieldSchedules | None, iteration: Int[Array, ""] | int
    ) -> Agent:
        """Return the agents with these schedules of fields, and with the fields' values in this
        iteration. None: all fields stay as they are."""
        return dataclasses.replace(self, schedules=schedules).at_iteration(jnp.asarray(iteration))

    def without_schedules(self) -> Agent:
        """Return the agents with fields that stay at their current values, as stored ones have."""
        return dataclasses.replace(self, schedules=None)

    def at_iteration(self, iteration: Int[Array, ""]) -> Agent:
        """Return the agents with the scheduled fields' values in this iteration."""
        if self.schedules is None:
            return self
        state = self.schedules.set_fields(self.state, iteration, self._name)
        return dataclasses.replace(self, state=state)

    def with_fields(self, config: Any, names: Collection[str]) -> Agent:
        """Return the agents with the fields ``names`` set to their values in ``config``, and with
        the needs of ``config``. If a field is the initial value of a learned number (``alpha`` of
        ``log_alpha``), that number is reset to it.

        Raise :class:`Mistake` if the State holds no Config.
        """
        state, count = self.state, len(jax.tree.leaves(self.state)[0])
        if names and not hasattr(state, "config"):
            raise Mistake(f"{self._name}: State has no `config`, so fields cannot change. Add it.")

        def number(path: Any, value: float) -> Array:
            before = getattr(state.config, path[0].name)
            changed = path[0].name in names or before is None
            return jnp.full(count, value, jnp.float32) if changed else before

        if names:
            made = jax.tree_util.tree_map_with_path(number, config)
            state = eqx.tree_at(operator.attrgetter("config"), state, made)
        for name in (name for name in names if hasattr(state, f"log_{name}")):
            learned = jnp.log(jnp.maximum(getattr(state.config, name), MIN_ALPHA))
            state = eqx.tree_at(operator.attrgetter(f"log_{name}"), state, learned)
        return dataclasses.replace(self, state=state, needs=self.algorithm.needs(config))


def check_several_agents(name: str, algorithm: Any, spec: Spec) -> None:
    """Raise :class:`Mistake` if the world has several agents and the algorithm handles only one."""
    if spec.agents is not None and not getattr(algorithm, "several_agents", False):
        count = len(spec.agents)
        raise Mistake(
            f"{name} trains one agent, and this environment has {count}. Use ippo or mappo."
        )


def check_imagines_what_it_sees(name: str, needs: AnyNeeds, spec: Spec) -> None:
    """Raise :class:`Mistake` if the algorithm rolls out a model of observations of which some
    entries are hidden from it."""
    if spec.unseen and needs.has_feed(DREAM):
        raise Mistake(
            f"{name} rolls out a model of what its policy observes, and {', '.join(spec.unseen)} "
            "only critics see. Use sac."
        )


def create_agent(
    settings: Settings, spec: Spec, seeds: Int[Array, "seed"] | None = None, own: Any = None
) -> Agent:
    """Return new agents for all seeds, created by one program; ``own`` as in ``Agent.create``."""
    algorithm: Any = algorithms.find(settings.algorithm)
    seeds = jnp.asarray(settings.seeds, jnp.int32) if seeds is None else seeds

    @jax.jit
    def create(seeds: Int[Array, "seed"], own: Any) -> Agent:
        start = named.for_seeds(seeds, "agent", 0)
        return Agent.create(
            algorithm, start, spec, settings.config, settings.program_strategy, own=own
        )

    check_several_agents(settings.algorithm, algorithm, spec)
    check_imagines_what_it_sees(settings.title, algorithm.needs(settings.config), spec)
    check_network_memory(settings)
    shapes = jax.eval_shape(create, seeds, own).state
    check_agent_memory(settings, shapes)
    check_choice_is_used(settings.encoder, shapes, settings.title)
    agent = create(seeds, own).with_schedules(first_schedules(settings), 0)
    return dataclasses.replace(agent, plasticity=plan_upkeep(settings, spec))


def first_schedules(settings: Settings) -> FieldSchedules | None:
    """Return the schedules of fields in the first phase of a run; None if there are none."""
    if not settings.schedules:
        return None
    return FieldSchedules.from_spans(plan_phases(settings)[0].schedules)

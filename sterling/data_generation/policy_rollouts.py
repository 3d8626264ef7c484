"""Act without learning: collect rows for a dataset, and returns to evaluate an agent."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from sterling import random_keys as named
from sterling.actor import Actor, Past
from sterling.experience import acting
from sterling.experience.rollouts.rollout import Rollout
from sterling.nets.action_heads import Actions
from sterling.nets.obs_encoder import action_mask
from sterling.training.config.settings import EVALUATION_LIMIT
from sterling.types import Action, Mistake, Obs, Record, World

ROWS_PER_DRAW = 2048  # collected at a time


class RandomActor(eqx.Module):
    """An actor with uniformly random actions: allowed ones where discrete, in [-1, 1] for boxes."""

    world: World = eqx.field(static=True)

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Return actions and their log-probability."""
        actions, envs = Actions.from_space(self.world.spec.action), self.world.spec.envs

        def choose(obs: Obs, key: Key[Array, ""]) -> tuple[Action, Array]:
            if actions.kind == "box":
                shape = (envs, *actions.sizes)
                density = -math.log(2.0) * math.prod(actions.sizes)
                return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0), jnp.full(
                    envs, density
                )
            outputs = jnp.zeros((envs, actions.outputs))
            pi: Any = actions.distribution(outputs, action_mask(obs, actions.sizes))
            action = pi.sample(key)
            return action, pi.log_prob(action)

        action, log_prob = jax.vmap(choose)(obs, keys)
        return action, {"log_prob": log_prob}


class GreedyActor(eqx.Module):
    """An actor that acts greedily: the mode of its policy, without exploration."""

    actor: Actor

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Return the mode of the policy."""
        action, _, extras = acting.choose(self.actor, None, obs, keys, False)
        return action, extras

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> PyTree:
        """Return the actor's initial memory."""
        return acting.initial_memory(self.actor, envs, keys)

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, PyTree, dict[str, Array]]:
        """Return the mode of the policy, and the new memory."""
        return acting.choose(self.actor, past, obs, keys, False)


def require_one_agent(world: World, name: str) -> World:
    """Return ``world``; if it has several agents, close it and raise Mistake."""
    if world.spec.agents is None:
        return world
    world.close()
    raise Mistake(
        f"{name} has {len(world.spec.agents)} agents, but a dataset holds the rewards of one. "
        "Name an environment with one agent."
    )


def collect_rows(world: World, actor: Actor, count: int, seed: int) -> Record:
    """Collect at least ``count`` valid rows ``(time, env, ...)`` on the host, in a fresh
    environment with one seed. Raises Mistake if no step is valid."""
    drawn, collected = [], 0
    for record in draw_records(world, actor, seed):
        drawn.append(record)
        collected += int(record.mask.sum())
        if collected >= count:
            break
    return concatenate_records(drawn)


def draw_records(world: World, actor: Actor, seed: int) -> Iterator[Record]:
    """Yield rows ``(time, env, ...)`` on the host without end, in a fresh environment with one
    seed. Raises Mistake if no step of a record is valid."""
    source = _start_rollout(world, seed, actor)
    for turn in itertools.count():
        source, record = _draw_rows(source, actor, _draw_keys(seed, turn))
        record = jax.tree.map(lambda x: np.asarray(x)[0], record)
        if not record.mask.any():
            raise Mistake(
                f"All {record.mask.size:,} steps were invalid: actions, observations or rewards "
                "are NaN or infinite. Check the environment's bounds and outputs."
            )
        yield record


def episode_returns(
    world: World, actor: Actor, episodes: int, seed: int, limit: int = EVALUATION_LIMIT
) -> np.ndarray:
    """Return the undiscounted returns of the first ``episodes`` episodes of every env, as
    ``(env, episode)``.

    If an episode has not ended after ``limit`` steps (rounded up to whole draws), its return so far
    is used, also for the episodes that its env had still to play.
    """
    envs = world.spec.envs
    age = np.zeros(envs, int)  # steps since an env's last episode end
    source, total = _start_rollout(world, seed, actor), np.zeros(envs)
    found: list[list[float]] = [[] for _ in range(envs)]
    for turn in itertools.count():
        source, reward, last = _draw_rewards(source, actor, _draw_keys(seed, turn))
        for gain, over in zip(np.asarray(reward)[0], np.asarray(last)[0], strict=True):
            total, age = total + gain, age + 1
            for env in np.flatnonzero(over).tolist():
                found[env].append(float(total[env]))
            total, age = np.where(over, 0.0, total), np.where(over, 0, age)
        played = np.array([len(each) for each in found])
        if ((played >= episodes) | (age >= limit)).all():
            break
    for each, unfinished in zip(found, total, strict=True):
        each.extend([float(unfinished)] * (episodes - len(each)))
    return np.array([each[:episodes] for each in found])


def concatenate_records(records: list[Record]) -> Record:
    """Concatenate records ``(time, ...)`` along time."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *records)


def _start_rollout(world: World, seed: int, actor: Actor) -> Rollout:
    start = named.for_seeds(jnp.asarray([seed], jnp.int32), "factory", 0)
    return Rollout.create(world, max(ROWS_PER_DRAW // world.spec.envs, 1), start, actor)


def _draw_keys(seed: int, turn: int) -> Key[Array, "seed"]:
    return named.for_seeds(jnp.asarray([seed], jnp.int32), "factory-draw", turn)


def _draw_rows(source: Rollout, actor: Actor, keys: Key[Array, "seed"]) -> tuple[Rollout, Record]:
    return _compiled_draw(source, actor, keys) if source.world.traced else source.live(actor, keys)


@eqx.filter_jit
def _compiled_draw(
    source: Rollout, actor: Actor, keys: Key[Array, "seed"]
) -> tuple[Rollout, Record]:
    return source.live(actor, keys)


def _draw_rewards(
    source: Rollout, actor: Actor, keys: Key[Array, "seed"]
) -> tuple[Rollout, Array, Array]:
    """Collect only rewards and episode ends, ``(seed, time, env)``."""
    if source.world.traced:
        return _compiled_rewards(source, actor, keys)
    source, record = source.live(actor, keys)
    return source, record.reward, record.last & record.mask


@eqx.filter_jit
def _compiled_rewards(
    source: Rollout, actor: Actor, keys: Key[Array, "seed"]
) -> tuple[Rollout, Array, Array]:
    source, record = source.live(actor, keys)
    return source, record.reward, record.last & record.mask

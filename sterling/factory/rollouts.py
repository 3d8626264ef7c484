"""Acting without learning: rows for a dataset, and returns to measure an agent by."""

from __future__ import annotations

import itertools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key, PyTree

from sterling import keys as named
from sterling.actor import Actor, Past
from sterling.experience import acting
from sterling.experience.rollout import Rollout
from sterling.nets.encoder import action_mask
from sterling.nets.heads import Actions
from sterling.training.settings import LIMIT
from sterling.types import Action, Mistake, Obs, Record, World

ROWS = 2048  # drawn at a time


class Chance(eqx.Module):
    """Acts uniformly at random among what is allowed; boxes are [-1, 1]."""

    world: World = eqx.field(static=True)

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Actions and their log probability."""
        actions, envs = Actions.of(self.world.spec.action), self.world.spec.envs

        def choose(obs: Obs, key: Key[Array, ""]) -> tuple[Action, Array]:
            if actions.kind == "box":
                shape = (envs, *actions.sizes)
                density = -math.log(2.0) * math.prod(actions.sizes)
                return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0), jnp.full(
                    envs, density
                )
            pi: Any = actions.distribution(jnp.zeros((envs, actions.outputs)), action_mask(obs))
            action = pi.sample(key)
            return action, pi.log_prob(action)

        action, log_prob = jax.vmap(choose)(obs, keys)
        return action, {"log_prob": log_prob}


class Best(eqx.Module):
    """An actor that does what it thinks best: without the noise it explores with."""

    actor: Actor

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """The mode of its policy."""
        action, _, extras = acting.choose(self.actor, None, obs, keys, False)
        return action, extras

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> PyTree:
        """What the actor remembers."""
        return acting.memory_of(self.actor, envs, keys)

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, PyTree, dict[str, Array]]:
        """The mode of its policy, and what it remembers."""
        return acting.choose(self.actor, past, obs, keys, False)


def of_one_agent(world: World, name: str) -> World:
    """``world``, or Mistake where it has several agents; it is closed then."""
    if world.spec.agents is None:
        return world
    world.close()
    raise Mistake(
        f"data is made of one agent and {name} has {len(world.spec.agents)}: a row of a dataset "
        "has one reward; name an environment of one agent"
    )


def rows(world: World, actor: Actor, count: int, seed: int) -> Record:
    """At least ``count`` rows of experience ``(time, env, ...)`` on the host, of a world of one
    seed in which nobody has acted yet. Raises Mistake where it lets nobody act."""
    source, drawn, lived, turn = _begun(world, seed, actor), [], 0, 0
    while lived < count:
        source, record = _draw(source, actor, _keys(seed, turn))
        record = jax.tree.map(lambda x: np.asarray(x)[0], record)
        drawn.append(record)
        if not record.mask.any():
            raise Mistake(
                f"not one of {record.mask.size:,} steps was experience: actions, observations or "
                "rewards are NaN or infinite; look at the environment's bounds and answers"
            )
        lived, turn = lived + int(record.mask.sum()), turn + 1
    return joined(drawn)


def returns(world: World, actor: Actor, episodes: int, seed: int, limit: int = LIMIT) -> np.ndarray:
    """Undiscounted returns of the first ``episodes`` episodes of every env, ``(env, episode)``.

    An episode that has not ended after ``limit`` steps (rounded up to a draw) counts as it stands,
    and so do those that its env would have played after it.
    """
    envs = world.spec.envs
    age = np.zeros(envs, int)  # steps since an env's last end
    source, total = _begun(world, seed, actor), np.zeros(envs)
    found: list[list[float]] = [[] for _ in range(envs)]
    for turn in itertools.count():
        source, reward, last = _draw_rewards(source, actor, _keys(seed, turn))
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


def joined(records: list[Record]) -> Record:
    """Records ``(time, ...)`` one after the other."""
    return jax.tree.map(lambda *parts: np.concatenate(parts), *records)


def _begun(world: World, seed: int, actor: Actor) -> Rollout:
    start = named.at(jnp.asarray([seed], jnp.int32), "factory", 0)
    return Rollout.create(world, max(ROWS // world.spec.envs, 1), start, actor)


def _keys(seed: int, turn: int) -> Key[Array, "seed"]:
    return named.at(jnp.asarray([seed], jnp.int32), "factory-draw", turn)


def _draw(source: Rollout, actor: Actor, keys: Key[Array, "seed"]) -> tuple[Rollout, Record]:
    return _compiled(source, actor, keys) if source.world.traced else source.live(actor, keys)


@eqx.filter_jit
def _compiled(source: Rollout, actor: Actor, keys: Key[Array, "seed"]) -> tuple[Rollout, Record]:
    return source.live(actor, keys)


def _draw_rewards(
    source: Rollout, actor: Actor, keys: Key[Array, "seed"]
) -> tuple[Rollout, Array, Array]:
    """Rewards and ends only, ``(seed, time, env)``."""
    if source.world.traced:
        return _rewards(source, actor, keys)
    source, record = source.live(actor, keys)
    return source, record.reward, record.last & record.mask


@eqx.filter_jit
def _rewards(
    source: Rollout, actor: Actor, keys: Key[Array, "seed"]
) -> tuple[Rollout, Array, Array]:
    source, record = source.live(actor, keys)
    return source, record.reward, record.last & record.mask

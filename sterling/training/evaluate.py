"""Evaluation: whole episodes of a frozen policy in a world of its own."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from sterling import keys
from sterling.training.agent import Agent
from sterling.types import Obs, Step, World

CHUNK = 100  # steps between looks at whether all episodes are over
LIMIT = 200_000  # steps after which an episode that does not end is counted as it stands


class Episodes(eqx.Module):
    """One episode per env, running or over."""

    state: PyTree
    obs: Obs
    returns: Float[Array, "seed env"]
    lengths: Int[Array, "seed env"]
    over: Bool[Array, "seed env"]
    memory: PyTree  # of agents that act by what they remember; else None


def evaluate(
    agent: Agent, world: World, seeds: Int[Array, "seed"], episodes: int | None = None
) -> dict[str, np.ndarray]:
    """So many episodes of every seed (default: one per env) under the deterministic policy.

    Every env plays equally many, in rounds, so that short episodes are not over-represented.
    Returns ``"return"`` and ``"length"``, both ``(seed, episode)``.
    """
    wanted, envs = episodes or world.spec.envs, world.spec.envs
    rounds = [_round(agent, world, seeds, number) for number in range(-(-wanted // envs))]
    whole = jax.tree.map(lambda *each: np.concatenate(each, 1)[:, :wanted], *rounds)
    return {"return": whole[0], "length": whole[1]}


def _round(
    agent: Agent, world: World, seeds: Int[Array, "seed"], number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths of one episode of every env, ``(seed, env)``."""
    state, obs = world.reset(keys.at(seeds, "evaluate", number))
    shape = (world.seeds, world.spec.envs)
    zeros = jnp.zeros(shape), jnp.zeros(shape, jnp.int32), jnp.zeros(shape, bool)
    episodes = Episodes(state, obs, *zeros, agent.memory(world.spec.envs))
    for clock in range(0, LIMIT, CHUNK):
        step = _chunk if world.traced else _host_chunk
        time = jnp.asarray(number * LIMIT + clock, jnp.int32)  # no two rounds' chances are the same
        episodes = step(agent, episodes, world, seeds, time)
        if bool(episodes.over.all()):
            break
    return np.asarray(episodes.returns), np.asarray(episodes.lengths)


@eqx.filter_jit
def _chunk(
    agent: Agent, episodes: Episodes, world: World, seeds: Int[Array, "seed"], clock: Array
) -> Episodes:
    def body(time: Array, episodes: Episodes) -> Episodes:
        return _step(agent, episodes, world, seeds, clock + time)

    return jax.lax.fori_loop(0, CHUNK, body, episodes)


def _host_chunk(
    agent: Agent, episodes: Episodes, world: World, seeds: Int[Array, "seed"], clock: Array
) -> Episodes:
    start = int(clock)
    for time in range(CHUNK):
        episodes = _step(agent, episodes, world, seeds, np.int32(start + time))
        if bool(episodes.over.all()):  # a step may be dear
            break
    return episodes


def _step(agent: Agent, episodes: Episodes, world: World, seeds: Any, clock: Any) -> Episodes:
    action, memory, world_keys = _choose(agent, episodes.obs, episodes.memory, seeds, clock)
    state, step = world.step(episodes.state, action, world_keys)
    return _count(agent, episodes, memory, state, step)


@eqx.filter_jit
def _choose(
    agent: Agent, obs: Obs, memory: PyTree, seeds: Int[Array, "seed"], clock: Int[Array, ""]
) -> Any:
    """The action, what is remembered, and the world's keys."""
    both = keys.at(seeds, "evaluate-act", clock), keys.at(seeds, "evaluate-world", clock)
    if memory is None:
        return agent.act(obs, both[0], False)[0], None, both[1]
    return *agent.recall(memory, obs, both[0], False), both[1]


@eqx.filter_jit
def _count(agent: Agent, episodes: Episodes, memory: PyTree, state: PyTree, step: Step) -> Episodes:
    """Book one step."""
    counts = ~episodes.over & jnp.asarray(step.mask)
    crashed = ~episodes.over & step.last & ~step.mask  # the world was restarted: begin again
    returns = episodes.returns + jnp.where(counts, step.reward, 0.0)
    lengths = episodes.lengths + counts.astype(jnp.int32)
    return Episodes(
        state,
        step.obs,
        jnp.where(crashed, 0.0, returns),
        jnp.where(crashed, 0, lengths),
        episodes.over | (step.last & counts),
        None if memory is None else agent.notice(memory, step.reward, step.last, step.mask),
    )

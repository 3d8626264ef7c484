"""Evaluation: whole episodes of a frozen policy in a world of its own."""

from __future__ import annotations

import time
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import keys
from sterling.actor import Actor, Past
from sterling.channels import Channel
from sterling.experience import acting, episode_totals
from sterling.experience.episode_totals import Totals
from sterling.notice import say
from sterling.training.settings import LIMIT
from sterling.types import Obs, Step, World

CHUNK = 100  # steps between looks at whether all episodes are over
SILENT = 20.0  # seconds between lines that say how far a long evaluation is


class Episodes(eqx.Module):
    """One episode per env, running or over."""

    state: PyTree
    obs: Obs
    totals: Totals  # by channel
    over: Bool[Array, "seed env"]
    past: Past | None  # of agents that remember


def evaluate(
    agent: Actor,
    world: World,
    seeds: Int[Array, "seed"],
    episodes: int | None = None,
    limit: int = LIMIT,
) -> dict[str, np.ndarray]:
    """So many episodes of every seed (default: one per env) under the deterministic policy.

    Every env plays equally many, in rounds, so that short episodes are not over-represented. An
    episode that has not ended after ``limit`` steps (rounded up to a multiple of ``CHUNK``) counts
    with its return so far, and a line on standard error says how many did.
    Returns ``"return"``, ``"length"``, ``"ended"`` and the columns of the world's channels, each
    ``(seed, episode)``.
    """
    wanted, envs = episodes or world.spec.envs, world.spec.envs
    limit, count = -(-limit // CHUNK) * CHUNK, -(-wanted // envs)
    rounds = [_round(agent, world, seeds, number, limit) for number in range(count)]
    found, over = jax.tree.map(lambda *each: np.concatenate(each, 1)[:, :wanted], *rounds)
    if unended := int((~over).sum()):
        said = f"{unended} of {over.size} evaluation episodes had not ended"
        remedy = "they count with their return so far (another limit: --evaluate-limit N)"
        say(f"{said} after {limit:,} steps; {remedy}")
    return {**found, "ended": over}


def _round(
    agent: Actor, world: World, seeds: Int[Array, "seed"], number: int, limit: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """One episode of every env: its numbers by column, and whether it ended, ``(seed, env)``."""
    state, obs = world.reset(keys.at(seeds, "evaluate", number))
    past = _begin(agent, world, keys.at(seeds, "evaluate-memory", number))
    shape = (world.seeds, world.spec.envs)
    channels = world.spec.channels
    totals = episode_totals.begin(channels, shape)
    episodes = Episodes(state, obs, totals, jnp.zeros(shape, bool), past)
    due = time.monotonic() + SILENT
    for clock in range(0, limit, CHUNK):
        step = _chunk if world.traced else _host_chunk
        now = jnp.asarray(number * limit + clock, jnp.int32)  # no two rounds' chances are the same
        episodes = step(agent, episodes, world, seeds, now)
        over = np.asarray(episodes.over)
        if over.all():
            break
        if time.monotonic() > due:
            due = time.monotonic() + SILENT
            ended = f"{over.sum()} of {over.size} episodes have ended"
            say(f"evaluating: {ended} after {clock + CHUNK:,} of at most {limit:,} steps")
    found = episode_totals.numbers(channels, episodes.totals)
    columns = episode_totals.by_column(channels, found)
    return jax.tree.map(np.asarray, (columns, episodes.over))


@eqx.filter_jit
def _begin(agent: Actor, world: World, start: Key[Array, "seed"]) -> Past | None:
    return acting.begin(agent, world.spec.action, (world.seeds, world.spec.envs), start)


@eqx.filter_jit
def _chunk(
    agent: Actor, episodes: Episodes, world: World, seeds: Int[Array, "seed"], clock: Array
) -> Episodes:
    def body(time: Array, episodes: Episodes) -> Episodes:
        return _step(agent, episodes, world, seeds, clock + time)

    return jax.lax.fori_loop(0, CHUNK, body, episodes)


def _host_chunk(
    agent: Actor, episodes: Episodes, world: World, seeds: Int[Array, "seed"], clock: Array
) -> Episodes:
    start = int(clock)
    for passed in range(CHUNK):
        episodes = _step(agent, episodes, world, seeds, np.int32(start + passed))
        if bool(episodes.over.all()):  # a step may be dear
            break
    return episodes


def _step(agent: Actor, episodes: Episodes, world: World, seeds: Any, clock: Any) -> Episodes:
    action, memory, world_keys = _choose(agent, episodes.obs, episodes.past, seeds, clock)
    state, step = world.step(episodes.state, action, world_keys)
    past = None
    if memory is not None:
        past = _answered(agent, memory, action, step, keys.at(seeds, "evaluate-memory", clock))
    return _count(episodes, world.spec.channels, past, state, step)


_answered = eqx.filter_jit(acting.answered)


@eqx.filter_jit
def _choose(
    agent: Actor,
    obs: Obs,
    past: Past | None,
    seeds: Int[Array, "seed"],
    clock: Int[Array, ""],
) -> Any:
    """The action, what is remembered, and the world's keys."""
    own, its = keys.at(seeds, "evaluate-act", clock), keys.at(seeds, "evaluate-world", clock)
    action, memory, _ = acting.choose(agent, past, obs, own, False)
    return action, memory, its


@eqx.filter_jit
def _count(
    episodes: Episodes,
    channels: dict[str, Channel],
    past: Past | None,
    state: PyTree,
    step: Step,
) -> Episodes:
    """Book one step."""
    counts = ~episodes.over & jnp.asarray(step.mask)
    crashed = ~episodes.over & step.last & ~step.mask  # the world was restarted: begin again
    totals = episode_totals.add(channels, episodes.totals, step.reward, step.channels, counts)
    totals = episode_totals.begin_again(channels, totals, crashed)
    return Episodes(state, step.obs, totals, episodes.over | (step.last & counts), past)

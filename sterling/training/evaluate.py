"""Evaluation: whole episodes of a frozen policy in a world of its own."""

from __future__ import annotations

import time

import jax
import numpy as np
from jaxtyping import Array, Int, Key

from sterling.actor import Actor
from sterling.experience.episodes import Episodes
from sterling.notice import say
from sterling.training.settings import LIMIT
from sterling.types import World

CHUNK = 100  # steps between looks at how far the episodes are
SILENT = 20.0  # seconds between lines that say how far a long evaluation is


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
    own = _keys(seeds)
    rounds = [_round(agent, world, own, number, limit) for number in range(count)]
    found, over = jax.tree.map(lambda *each: np.concatenate(each, 1)[:, :wanted], *rounds)
    if unended := int((~over).sum()):
        said = f"{unended} of {over.size} evaluation episodes had not ended"
        remedy = "they count with their return so far (another limit: --evaluate-limit N)"
        say(f"{said} after {limit:,} steps; {remedy}")
    return {**found, "ended": over}


_keys = jax.jit(jax.vmap(jax.random.key))


def _round(
    agent: Actor, world: World, own: Key[Array, "seed"], number: int, limit: int
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """One episode of every env: its numbers by column, and whether it ended, ``(seed, env)``."""
    episodes = Episodes(world)
    playing = episodes.begin(agent, own, number)
    due = time.monotonic() + SILENT
    for clock in range(0, limit, CHUNK):
        now = number * limit + clock  # no two rounds' chances are the same
        playing = episodes.go_on(agent, playing, own, now, CHUNK)
        over = np.asarray(playing.over)
        if over.all():
            break
        if time.monotonic() > due:
            due = time.monotonic() + SILENT
            ended = f"{over.sum()} of {over.size} episodes have ended"
            say(f"evaluating: {ended} after {clock + CHUNK:,} of at most {limit:,} steps")
    return jax.tree.map(np.asarray, (episodes.found(playing), playing.over))

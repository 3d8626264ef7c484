"""Batches made by hand for an algorithm, with ends, truncations and masked rows."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling import random_keys
from sterling.experience.beside_rows import STEPS
from sterling.needs.feed import FRESH, Feed
from sterling.types import Record, Spec

ENVS = 4
ACTION_SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "continuous": spaces.Box(-1.0, 1.0, (2,), np.float32),
}
# what rows say of the actor's memory, also where they are masked
MEMORY_EXTRAS = ("begins", STEPS)
OBS_SPACE = spaces.Box(-10.0, 10.0, (3,), np.float32)


def make_spec(form: str) -> Spec:
    """Return the spec of a made-up problem with ``form`` ("discrete" or "continuous") actions."""
    return Spec(obs=OBS_SPACE, action=ACTION_SPACES[form], envs=ENVS, iterations=10)


def random_observations(count: int, seed: int) -> Any:
    """Return ``count`` random observations."""
    return np.random.default_rng(seed).normal(size=(count, *OBS_SPACE.shape)).astype(np.float32)


def make_batch(algorithm: Any, state: Any, needs: Any) -> Record:
    """Return a rollout ``(time, env)`` or a batch of transitions ``(row,)`` as the algorithm itself
    might collect it: actions and their extras come from its ``act``."""
    rollout, feed = needs.has_feed(FRESH), needs.feeds[0]
    shape = (needs.collect, ENVS) if rollout else (feed.batch,)
    rng = np.random.default_rng(5)
    kind = rng.random(shape)
    last, mask = kind < 0.3, np.ones(shape, bool)
    if rollout:
        mask[1:] = ~last[:-1]
    else:
        mask = rng.random(shape) < 0.8
    last &= mask
    all_obs = rng.normal(size=(shape[0] + 1, *shape[1:], *OBS_SPACE.shape)).astype(np.float32)
    obs, next_obs = all_obs[:-1], all_obs[1:]
    action, extras = _choose_actions(algorithm, state, jnp.asarray(obs), rollout)
    parts = {
        "obs": obs,
        "action": action,
        "reward": rng.normal(size=shape).astype(np.float32),
        "discount": np.where(last & (kind < 0.15), 0.0, 1.0).astype(np.float32),
        "next_obs": next_obs,
        "last": last,
        "mask": mask,
        "extras": extras if rollout else _replay_extras(feed, shape, action, rng),
    }
    return Record(**jax.tree.map(jnp.asarray, parts))


def corrupt_masked_rows(batch: Record, noise: float, rollout: bool) -> Record:
    """Return the batch with ``noise`` added to its masked rows.

    A rollout, or a sequence from a replay, keeps its observations: they are the next observations
    of the rows before.
    """
    wrong = jnp.where(batch.mask, 0.0, noise).astype(jnp.float32)

    def corrupt(leaf: Any) -> Any:
        if leaf.ndim < wrong.ndim:  # a leaf of a whole sequence
            return leaf
        spread = wrong.reshape(wrong.shape + (1,) * (leaf.ndim - wrong.ndim))
        return leaf + spread if leaf.dtype == jnp.float32 else leaf

    names = ("action", "reward") if rollout else ("action", "reward", "obs", "next_obs")
    changed = {name: jax.tree.map(corrupt, getattr(batch, name)) for name in names}
    own = {name: x for name, x in batch.extras.items() if name not in MEMORY_EXTRAS}
    changed["extras"] = {**batch.extras, **jax.tree.map(corrupt, own)}
    changed["beside"] = {
        # a later row that is masked is a final observation, which may be learned from
        name: corrupt_masked_rows(each, noise, rollout=STEPS in each.extras)
        for name, each in batch.beside.items()
    }
    return Record(**{**vars(batch), **changed})


def with_final_discount(batch: Record, discount: float) -> Record:
    """Return the batch with ``discount`` at the last rows of its episodes, also as that of the
    row's own step."""
    final = jnp.where(batch.last, discount, 1.0)
    now = {"discount_now": final} if "discount_now" in batch.extras else {}
    return Record(**{**vars(batch), "discount": final, "extras": {**batch.extras, **now}})


def _choose_actions(algorithm: Any, state: Any, obs: Any, rollout: bool) -> Any:
    """Return the algorithm's actions and extras for observations, step by step for a rollout."""
    key = jax.random.key(3)
    if not rollout:
        return algorithm.act(state, obs, key, True)
    each = random_keys.split(key, "act", obs.shape[0])
    return jax.vmap(lambda obs, key: algorithm.act(state, obs, key, True))(obs, each)


def _replay_extras(feed: Feed, shape: Any, action: Any, rng: np.random.Generator) -> dict[str, Any]:
    """Return the extras that a replay adds to its rows."""
    found: dict[str, Any] = {}
    if feed.priority:
        found["weight"] = rng.uniform(0.3, 1.0, shape).astype(np.float32)
    if "next_action" in feed.add:
        found["next_action"] = jnp.roll(action, -1, 0)
    if "place" in feed.add:
        found["place"] = np.arange(shape[0], dtype=np.int32)
    if "one_step" in feed.add:
        found["reward_now"] = rng.normal(size=shape).astype(np.float32)
        found["discount_now"] = np.ones(shape, np.float32)
    if feed.monte_carlo is not None:
        found["monte_carlo"] = rng.normal(size=shape).astype(np.float32)
    return found

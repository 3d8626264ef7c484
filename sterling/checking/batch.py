"""A batch as an algorithm is given it, with ends, cuts and rows that are no experience."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling import keys
from sterling.needs import FRESH, Feed
from sterling.types import Record, Spec

ENVS = 4
SPACES: dict[str, spaces.Space[Any]] = {
    "discrete": spaces.Discrete(3),
    "continuous": spaces.Box(-1.0, 1.0, (2,), np.float32),
}
REMEMBERED = ("memory", "begins")  # what a stretch's rows say of the actor, whatever they are worth
OBS = spaces.Box(-10.0, 10.0, (3,), np.float32)


def problem(form: str) -> Spec:
    """Return the problem of a made-up world with ``form`` (discrete, continuous) actions."""
    return Spec(obs=OBS, action=SPACES[form], envs=ENVS, iterations=10)


def observations(count: int, seed: int) -> Any:
    """Return ``count`` random observations."""
    return np.random.default_rng(seed).normal(size=(count, *OBS.shape)).astype(np.float32)


def made_batch(algorithm: Any, state: Any, needs: Any) -> Record:
    """Return a rollout ``(time, env)`` or a batch of transitions ``(row,)`` that the algorithm
    itself might have made: actions and what is recorded beside them are its own."""
    rollout, feed = needs.of(FRESH), needs.feeds[0]
    shape = (needs.collect, ENVS) if rollout else (feed.batch,)
    rng = np.random.default_rng(5)
    kind = rng.random(shape)
    last, mask = kind < 0.3, np.ones(shape, bool)
    if rollout:
        mask[1:] = ~last[:-1]
    else:
        mask = rng.random(shape) < 0.8
    last &= mask
    everything = rng.normal(size=(shape[0] + 1, *shape[1:], *OBS.shape)).astype(np.float32)
    obs, following = everything[:-1], everything[1:]
    action, extras = _acted(algorithm, state, jnp.asarray(obs), rollout)
    parts = {
        "obs": obs,
        "action": action,
        "reward": rng.normal(size=shape).astype(np.float32),
        "discount": np.where(last & (kind < 0.15), 0.0, 1.0).astype(np.float32),
        "next_obs": following,
        "last": last,
        "mask": mask,
        "extras": extras if rollout else _replayed(feed, shape, action, rng),
    }
    return Record(**jax.tree.map(jnp.asarray, parts))


def with_garbage(batch: Record, garbage: float, rollout: bool) -> Record:
    """Return the batch with other numbers in the rows that have no mask. A rollout, or a stretch of
    a replay, keeps its observations: they are the successors of the rows before."""
    wrong = jnp.where(batch.mask, 0.0, garbage).astype(jnp.float32)

    def spoilt(leaf: Any) -> Any:
        if leaf.ndim < wrong.ndim:  # of a whole stretch
            return leaf
        spread = wrong.reshape(wrong.shape + (1,) * (leaf.ndim - wrong.ndim))
        return leaf + spread if leaf.dtype == jnp.float32 else leaf

    names = ("action", "reward") if rollout else ("action", "reward", "obs", "next_obs")
    changed = {name: jax.tree.map(spoilt, getattr(batch, name)) for name in names}
    own = {name: x for name, x in batch.extras.items() if name not in REMEMBERED}
    changed["extras"] = {**batch.extras, **jax.tree.map(spoilt, own)}
    return Record(**{**vars(batch), **changed})


def with_discount(batch: Record, discount: float) -> Record:
    """Return the batch with another discount at the last rows of its episodes."""
    return Record(**{**vars(batch), "discount": jnp.where(batch.last, discount, 1.0)})


def _acted(algorithm: Any, state: Any, obs: Any, rollout: bool) -> Any:
    """Actions and extras for observations; a rollout's time by time."""
    key = jax.random.key(3)
    if not rollout:
        return algorithm.act(state, obs, key, True)
    each = keys.deal(key, "act", obs.shape[0])
    return jax.vmap(lambda obs, key: algorithm.act(state, obs, key, True))(obs, each)


def _replayed(feed: Feed, shape: Any, action: Any, rng: np.random.Generator) -> dict[str, Any]:
    """What a replay gives beside its rows."""
    found: dict[str, Any] = {}
    if feed.priority:
        found["weight"] = rng.uniform(0.3, 1.0, shape).astype(np.float32)
    if feed.next_action:
        found["next_action"] = jnp.roll(action, -1, 0)
    if feed.monte_carlo is not None:
        found["monte_carlo"] = rng.normal(size=shape).astype(np.float32)
    return found

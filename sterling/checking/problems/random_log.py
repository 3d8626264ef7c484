"""A small log of random actions in a world of Sterling's, for learners of logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling import envs, random_keys
from sterling.checking.random_play import random_actions
from sterling.data.dataset import Dataset
from sterling.data.dataset_metadata import Facts, Source
from sterling.data.episode_columns import Arrays, Block
from sterling.data.space_json import column_spaces

ENVS, STEPS = 8, 60


def write_random_log(environment: str, folder: Path) -> Path:
    """Play random actions in a world of Tasks, write the whole episodes to a file in ``folder``,
    and return its path."""
    world: Any = envs.make(environment, (0,), ENVS, strategy="map")
    try:
        rows = _play(world)
    finally:
        world.close()
    facts = Facts(environment, sources=(Source("uniformly random actions"),))
    made = Dataset.from_block(_whole_episodes(rows), world.spec.obs, world.spec.action, facts)
    return made.save(folder / f"{environment.replace(':', '-')}.npz", "npz")


def _play(world: Any) -> dict[str, Any]:
    """Return every column's values ``(time, env, ...)``, and the ends and masks; there is one more
    row of observations."""
    names = {
        kind: tuple(column_spaces(kind, getattr(world.spec, kind))) for kind in ("obs", "action")
    }
    numbers, hands = jnp.zeros(1, jnp.int32), [np.random.default_rng(7)]
    state, obs = world.reset(random_keys.for_seeds(numbers, "reset", 0))
    step, rows = jax.jit(world.step), []
    for clock in range(STEPS):
        action = random_actions(world.spec, jax.tree.map(np.asarray, obs), hands)
        state, answer = step(state, action, random_keys.for_seeds(numbers, "step", clock))
        own = dict(zip(names["obs"], jax.tree.leaves(obs), strict=True))
        own |= {
            f"then/{name}": x
            for name, x in zip(names["obs"], jax.tree.leaves(answer.obs), strict=True)
        }
        own |= dict(zip(names["action"], jax.tree.leaves(action), strict=True))
        own |= {name: getattr(answer, name) for name in ("reward", "discount", "last", "mask")}
        rows.append({name: np.asarray(x)[0] for name, x in own.items()})
        obs = answer.obs
    return {name: np.stack([row[name] for row in rows]) for name in rows[0]}


def _whole_episodes(rows: dict[str, Any]) -> Block:
    """Return the episodes that are over, env after env."""
    last, mask = rows.pop("last"), rows.pop("mask")
    parts: list[Arrays] = []
    for env in range(last.shape[1]):
        begin: Any = 0
        for end in np.flatnonzero(last[:, env]):
            steps = begin + np.flatnonzero(mask[begin : end + 1, env])
            parts.append(_episode({name: x[steps, env] for name, x in rows.items()}))
            begin = end + 1
    lengths = np.array([len(each["reward"]) for each in parts], np.int64)
    joined = {name: np.concatenate([each[name] for each in parts]) for name in parts[0]}
    return Block(joined, lengths, np.zeros(len(lengths), np.int32))


def _episode(rows: Arrays) -> Arrays:
    """Return an episode's columns: its observations end with the last step's successor."""
    made = {name: x for name, x in rows.items() if not name.startswith("then/")}
    for name in rows:
        if name.startswith("then/"):
            own = name.removeprefix("then/")
            made[own] = np.concatenate([rows[own], rows[name][-1:]])
    return made

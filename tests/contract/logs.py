"""Logs of probe worlds: lived by chance, or by who knows the answer."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import sterling
from sterling import envs
from sterling.data import Dataset
from sterling.data.episode_columns import Block
from sterling.data.space_json import column_spaces
from sterling.envs.probes.probe_worlds import make_probe

ENVS, STEPS = 64, 60


def write(world: str, wise: bool, path: Path) -> Path:
    """A log of 64 parallel envs over 60 steps, in a folder of that name; actions are uniformly
    random, or where the probe asks for certain ones and ``wise``, those."""
    answer = make_probe(world).solution(0.8) if wise else None
    made = envs.make(f"probe:{world}", (0,), ENVS)
    random = np.random.default_rng(0)
    state, obs = made.reset(jax.random.key(0)[None])
    step_all, rows = jax.jit(made.step), []
    for time in range(STEPS):
        seen = jax.tree.map(lambda x: np.asarray(x[0]), obs)
        action = _random(made.spec.action, random)
        if answer is not None and answer.action is not None:
            action = answer.action[np.abs(seen - answer.obs[:, 0]).argmin(1)]
        keys = jax.random.fold_in(jax.random.key(1), time)[None]
        state, step = step_all(state, jnp.asarray(action)[None], keys)
        after = (step.reward, step.discount, step.last, step.mask, step.obs)
        rows.append((seen, action, *jax.tree.map(lambda x: np.asarray(x[0]), after)))
        obs = step.obs
    parts = jax.tree.map(lambda *column: np.stack(column, 1), *rows)
    return _episodes(made.spec, parts).save(path / world)


def _random(space, random):
    if hasattr(space, "n"):
        return random.integers(0, space.n, ENVS).astype(np.int32)
    return random.uniform(-1.0, 1.0, (ENVS, *space.shape)).astype(np.float32)


def _episodes(spec, parts) -> Dataset:
    """Whole and (at the end) cut episodes of columns ``(env, time, ...)``."""
    seen = list(column_spaces("obs", spec.obs))
    columns = {name: [] for name in (*seen, "action", "reward", "discount")}
    lengths = []
    for env in range(ENVS):
        obs, action, reward, discount, last, mask, after = jax.tree.map(
            lambda x, env=env: x[env], parts
        )
        start = 0
        for end in (*np.flatnonzero(last), STEPS - 1):
            rows = np.arange(start, end + 1)[mask[start : end + 1]]
            start = end + 1
            if not rows.size:
                continue
            for name, x, y in zip(seen, jax.tree.leaves(obs), jax.tree.leaves(after), strict=True):
                columns[name].append(np.concatenate([x[rows], y[rows[-1:]]]))
            for name, x in (("action", action), ("reward", reward), ("discount", discount)):
                columns[name].append(x[rows])
            lengths.append(rows.size)
    arrays = {name: np.concatenate(column) for name, column in columns.items()}
    block = Block(arrays, np.array(lengths), np.zeros(len(lengths), np.int32))
    return Dataset.from_block(block, spec.obs, spec.action)


def teacher(world: str, folder: Path) -> Path:
    """A run folder of PPO that knows the world's answer, made if it is not there."""
    path = folder / "teacher" / world
    if not path.exists():
        fields = {
            **{"gamma": 0.8, "gae_lambda": 0.9, "lr": 5e-3, "length": 16, "minibatch": 64},
            **{"epochs": 4, "width": 16, "log_std": -0.5, "normalise_obs": False},
            **{"normalise_reward": False, "evaluate_episodes": 0, "preset": False},
        }
        sterling.train("ppo", f"probe:{world}", steps=40_000, seeds=2, out=path, **fields)
    return path

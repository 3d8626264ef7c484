"""Several agents for updates that are compared with oracles: the problem, and a rollout in which
agents leave; whatever stands in rows of nobody is garbage."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling.problem.agent_axis import Agents, joint
from sterling.types import Record, Spec

NAMES = ("red", "green", "blue")
STATE = 2  # numbers that only critics see


def spec(obs: Any, action: Any, envs: int, has_choices: bool, has_state: bool = False) -> Spec:
    """Return the problem of three agents who each see ``obs`` and do ``action``; where it
    ``has_state``, critics see that too."""
    count = len(NAMES)
    parts: dict[str, Any] = {"x": joint(obs, count), "alive": spaces.MultiBinary(count)}
    if has_choices:
        parts["action_mask"] = spaces.MultiBinary((count, int(action.n)))
    if has_state:
        parts["state"] = spaces.Box(-np.inf, np.inf, (STATE,), np.float32)
    agents = Agents(NAMES)
    act, beside = joint(action, count), {"unseen": ("state",) if has_state else ()}
    known: Any = {"channels": agents.channels, "agents": agents, **beside}
    return Spec(spaces.Dict(parts), act, envs, 100, **known)


def make_batch(length: int, problem: Spec, garbage: float) -> Record:
    """Return a rollout of so many steps with ends, cuts, rows without a mask and agents that leave;
    rows without a mask, and what stands where an agent is gone, hold ``garbage``."""
    rng, shape = np.random.default_rng(11), (length, problem.envs)
    kind = rng.random(shape)
    mask, last = np.ones(shape, bool), kind < 0.25
    mask[1:] = ~last[:-1]
    mask[2, 1] = False
    last &= mask
    alive = np.ones((length + 1, problem.envs, len(NAMES)), bool)
    for time in range(length):
        stays = rng.random(alive.shape[1:]) < 0.8
        alive[time + 1] = np.where(mask[time][:, None], alive[time] & stays, True)
    counts = mask[..., None] & alive[:-1]
    wrong = np.where(counts, 0.0, garbage).astype(np.float32)
    space: Any = problem.obs
    seen = rng.normal(size=(length + 1, problem.envs, *space["x"].shape)).astype(np.float32)
    seen += np.where(alive, 0.0, garbage).astype(np.float32)[..., None]  # of those who are gone
    whole: dict[str, Any] = {"x": seen, "alive": alive.astype(np.int8)}
    action = _actions(problem, counts, garbage, rng)
    if "action_mask" in space.spaces:
        allowed = rng.random((*alive.shape, space["action_mask"].shape[-1])) < 0.6
        np.put_along_axis(allowed[:-1], action[..., None], True, -1)
        whole["action_mask"] = allowed.astype(np.int8)
    if "state" in space.spaces:
        known = np.random.default_rng(12).normal(size=(length + 1, problem.envs, STATE))
        whole["state"] = known.astype(np.float32)
    own = (rng.normal(size=counts.shape) + wrong).astype(np.float32)
    parts = {
        "obs": {name: x[:-1] for name, x in whole.items()},
        "action": action,
        "reward": np.where(mask, own.sum(-1, where=counts), garbage).astype(np.float32),
        "discount": np.where(kind < 0.12, 0.0, np.where(kind > 0.8, 0.64, 1.0)).astype(np.float32),
        "next_obs": {name: x[1:] for name, x in whole.items()},
        "last": last,
        "mask": mask,
        "extras": {
            "reward": own,
            "log_prob": (-1.5 + 0.3 * rng.normal(size=counts.shape)).astype(np.float32) + wrong,
        },
    }
    return Record(**jax.tree.map(jnp.asarray, parts))


def _actions(problem: Spec, counts: np.ndarray, garbage: float, rng: Any) -> np.ndarray:
    """What is done: any choice, or numbers in [-1, 1], garbage where nobody is there to do it."""
    space: Any = problem.action
    if isinstance(space, spaces.MultiDiscrete):
        return rng.integers(int(space.nvec[0]), size=counts.shape).astype(np.int32)
    numbers = np.tanh(rng.normal(size=(*counts.shape, space.shape[-1])))
    return np.where(counts[..., None], numbers, garbage).astype(np.float32)

"""One update of every algorithm on a fixed batch, as numbers.

python tests/contract/golden.py ppo [dqn ...]     # look at the difference before committing it
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

sys.path.insert(0, str(Path(__file__).parent))
from cases import CASES

from sterling import algorithms
from sterling.types import Record, Rollouts, Sequences, Signals, Spec

FILE = Path(__file__).parent / "golden.json"
NORMALISED = "-continuous-normalised"  # with the running normalisers that are PPO's default
RUNS = [(case.name, form) for case in CASES.values() for form in case.spaces]
RUNS.append(("ppo", NORMALISED))
ENVS, FEATURES = 4, 3


def one_update(name: str, form: str, garbage: float = 0.0) -> tuple[Any, Any, Signals]:
    """State before and after one update, and the signals; masked rows are filled with garbage."""
    module = algorithms.find(name)
    own = {"normalise_obs": True, "normalise_reward": True} if form == NORMALISED else {}
    config = module.Config(**CASES[name].fields | own)
    action: spaces.Space[Any] = spaces.Discrete(3)
    if form:
        action = spaces.Box(-1.0, 1.0, (2,), np.float32)
    obs = spaces.Box(-np.inf, np.inf, (FEATURES,), np.float32)
    spec = Spec(obs, action, ENVS, iterations=100)
    state = jax.jit(lambda key: module.init(key, spec, config))(jax.random.key(0))
    needs = module.needs(config)
    rollout = isinstance(needs, Rollouts)
    shape = (needs.length, ENVS) if rollout else (needs.batch,)
    if isinstance(needs, Sequences):
        shape = (needs.batch, needs.length)
    batch = make_batch(shape, bool(form), garbage, rollout)
    batch = dataclasses.replace(batch, extras=batch.extras | wanted(needs, batch))
    after, signals = jax.jit(module.learn)(state, batch, jax.random.key(1))
    return state, after, signals


def make_batch(shape: tuple[int, ...], continuous: bool, garbage: float, rollout: bool) -> Record:
    """A fixed batch with ends, cuts and masked rows."""
    rng = np.random.default_rng(7)
    obs = rng.normal(size=(shape[0] + 1, *shape[1:], FEATURES)).astype(np.float32)
    rows = rng.random(shape)
    last = rows < 0.2
    mask = np.concatenate([np.ones_like(last[:1]), ~last[:-1]])
    last &= mask
    discount = np.where(rows < 0.1, 0.0, 1.0).astype(np.float32)
    if continuous:
        action: Any = np.tanh(rng.normal(size=(*shape, 2))).astype(np.float32)
    else:
        action = rng.integers(3, size=shape).astype(np.int32)
    reward = rng.normal(size=shape).astype(np.float32)
    reward = np.where(mask, reward, garbage).astype(np.float32)
    next_obs = obs[1:]
    if not rollout:  # a masked row of a rollout holds the true final observation: keep it
        noise = np.where(mask[..., None], 0.0, garbage).astype(np.float32)
        next_obs = next_obs + noise
    extras = {"log_prob": np.full(shape, -1.1, np.float32)} if rollout else {}
    parts = (obs[:-1], action, reward, discount, next_obs, last, mask, extras)
    return Record(*jax.tree.map(jnp.asarray, parts))


def wanted(needs: Any, batch: Record) -> dict[str, Any]:
    """What else the learner asked for."""
    extras = {}
    if isinstance(needs, Sequences):
        time = jnp.arange(needs.length, dtype=jnp.int32)
        extras["time"] = jnp.broadcast_to(time[None], batch.mask.shape)
    if getattr(needs, "next_action", False):
        extras["next_action"] = jax.tree.map(lambda x: x[::-1], batch.action)
    if isinstance(needs, Sequences) or getattr(needs, "monte_carlo", None) is not None:
        extras["monte_carlo"] = 2.0 * batch.reward
    return extras


def numbers(after: Any, signals: Signals) -> dict[str, float]:
    """The metrics, and the sum and size of everything learned."""
    leaves = [np.asarray(x, np.float64) for x in jax.tree.leaves(after)]
    finite = [np.where(np.isfinite(x), x, 0.0) for x in leaves]
    found = {key: float(value) for key, value in sorted(signals.metrics.items())}
    found["state/sum"] = float(sum(x.sum() for x in finite))
    found["state/norm"] = float(np.sqrt(sum(np.square(x).sum() for x in finite)))
    return found


def main() -> None:
    """Write the numbers of the algorithms named on the command line."""
    stored = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name, form in RUNS:
        if name in sys.argv[1:]:
            _, after, signals = one_update(name, form)
            stored[name + form] = numbers(after, signals)
    FILE.write_text(json.dumps(stored, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()

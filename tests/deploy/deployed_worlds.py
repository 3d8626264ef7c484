"""Runs with weights far from their first values, without training: every choice is a clear one."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from sterling.training.agent import create_agent
from sterling.training.assembly.build_run import make_world
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.trained_run import TrainedRun

STATISTICS = ("obs_statistics", "normaliser")


@functools.cache
def new_run(algorithm, environment, seeds=1, scale=0.3, **fields):
    """A run that was not trained, with random weights and normalisers that have seen something."""
    settings = resolve_settings(
        algorithm, environment, steps=60_000, seeds=seeds, preset=False, fields=fields
    )
    world = make_world(settings, "evaluate", 1)
    spec = dataclasses.replace(world.spec, envs=settings.envs, iterations=4)
    world.close()
    agent = create_agent(settings, spec)
    return TrainedRun(settings, moved(agent, scale), {}, None)


def moved(agent, scale):
    """The agent with other weights, biases and statistics of observations."""
    rng = np.random.default_rng(0)

    def change(path, x):
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        if name.startswith(("optimiser", "target")) or x.dtype != jnp.float32:
            return x
        if name.endswith(("weight", "bias")):
            return x + jnp.asarray(rng.normal(0.0, scale, x.shape), jnp.float32)
        if name.startswith(STATISTICS) and name.endswith("mean"):
            return x + jnp.asarray(rng.normal(0.0, 0.1, x.shape), jnp.float32)
        if name.startswith(STATISTICS) and name.endswith("variance"):
            return x * jnp.asarray(rng.uniform(0.5, 2.0, x.shape), jnp.float32)
        return x

    state = jax.tree_util.tree_map_with_path(change, agent.state)
    return dataclasses.replace(agent, state=state)


class Pictures:
    """A task whose observations are pictures of bytes."""

    obs = spaces.Box(0, 255, (3, 12, 12), np.uint8)
    action: spaces.Space = spaces.Box(-1.0, 2.0, (2,), np.float32)

    def reset(self, key):
        """Place the dot."""
        state = jax.random.randint(key, (2,), 0, 12)
        return state, self._drawn(state)

    def step(self, state, action, key):
        """Throw the dot somewhere else."""
        return *self.reset(key), jnp.float32(0.0), jnp.array(False), jnp.array(False)

    def _drawn(self, state):
        rows = jnp.arange(3 * 12 * 12, dtype=jnp.int32).reshape(3, 12, 12)
        noise = (rows * (7 + state[0]) + state[1] * 31) % 256
        return noise.astype(jnp.uint8).at[:, state[0], state[1]].set(255)


class PicturesOfChoices(Pictures):
    """The same with four choices."""

    action = spaces.Discrete(4)

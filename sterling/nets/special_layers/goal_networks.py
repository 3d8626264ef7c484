"""Networks of learners that are asked for goals: what they read, values in pairs, and policies."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.nets.action_heads import Actions
from sterling.nets.mlp import MLP
from sterling.problem.action_choices import ACTION_MASK
from sterling.problem.goal_obs import ACHIEVED, DESIRED, OBSERVATION, has_goals
from sterling.types import Action, Mistake, Obs, Spec


def goal_sizes(name: str, spec: Spec) -> tuple[int, int]:
    """Return the numbers of an observation and of a goal, for the algorithm ``name``. Raise Mistake
    if the problem has no goals, or these are not vectors."""
    space: Any = spec.obs
    parts = [space[key] for key in (OBSERVATION, DESIRED)] if has_goals(space) else []
    if not parts or not all(isinstance(x, spaces.Box) and len(x.shape) == 1 for x in parts):
        raise Mistake(
            f"{name} learns to reach goals, and observations are {space}. It needs vectors "
            f"{OBSERVATION}, {ACHIEVED} and {DESIRED}, or a log of one of OGBench's worlds: see "
            "docs/goals.md."
        )
    if ACTION_MASK in space.spaces:
        raise Mistake(
            f"{name} cannot obey the {ACTION_MASK} that is observed: its policy reads only "
            f"{OBSERVATION} and {DESIRED}. Use dqn or ppo."
        )
    size, goal = (int(part.shape[0]) for part in parts)
    return size, goal


def with_goal(obs: Obs, goal: Float[Array, "... n"]) -> Float[Array, "... both"]:
    """Return what networks read: an observation, and the goal."""
    seen: Array = obs[OBSERVATION]
    return jnp.concatenate([seen.astype(jnp.float32), goal.astype(jnp.float32)], -1)


def with_own_goal(obs: Obs) -> Float[Array, "... both"]:
    """Return what networks read, with the goal that is observed."""
    return with_goal(obs, obs[DESIRED])


class TwinValues(eqx.Module):
    """Two networks with one output, on the same inputs."""

    first: MLP
    second: MLP

    @classmethod
    def create(
        cls, key: Key[Array, ""], sizes: tuple[int, ...], activation: str, *, layer_norm: bool
    ) -> TwinValues:
        """Create networks with inputs and hidden layers of ``sizes``."""
        made = (
            MLP.uniform(random_keys.fold(key, name), (*sizes, 1), activation, layer_norm=layer_norm)
            for name in ("first", "second")
        )
        return cls(*made)

    def __call__(
        self, x: Float[Array, "... inputs"]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Return both values."""
        return self.first(x)[..., 0], self.second(x)[..., 0]

    def mean(self, x: Float[Array, "... inputs"]) -> Float[Array, "..."]:
        """Return the mean of both values."""
        first, second = self(x)
        return 0.5 * (first + second)


class UnitPolicy(eqx.Module):
    """pi(.|x): for a Box a normal distribution of deviation 1, whose samples and means are clipped
    to the space where they act; otherwise categorical."""

    net: MLP
    actions: Actions = eqx.field(static=True)

    @classmethod
    def create(
        cls, key: Key[Array, ""], sizes: tuple[int, ...], actions: Actions, activation: str
    ) -> UnitPolicy:
        """Create a policy with inputs and hidden layers of ``sizes``."""
        return cls(MLP.uniform(key, (*sizes, actions.outputs), activation), actions)

    def __call__(self, x: Float[Array, "... inputs"]) -> Any:
        """Return the distribution over actions; those of a Box are flat."""
        return self.actions.distribution(self.net(x))

    def act(self, x: Float[Array, "... inputs"], key: Key[Array, ""], explore: bool) -> Action:
        """Return a sample, or the mode without ``explore``, in the space's shape and bounds."""
        pi = self(x)
        action = pi.sample(key) if explore else pi.mode()
        if self.actions.kind != "box":
            return action
        return self.actions.shaped(jnp.clip(action, -1.0, 1.0))

    def log_prob(self, x: Float[Array, "... inputs"], action: Action) -> Float[Array, "..."]:
        """Return log pi(a|x) of logged actions, given in the space's own shape."""
        flat = action.reshape(*x.shape[:-1], -1) if self.actions.kind == "box" else action
        log_p: Array = self(x).log_prob(flat)
        return log_p


def unit_length(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Return vectors scaled to the length sqrt(n)."""
    length = jnp.sqrt(jnp.sum(jnp.square(x), -1, keepdims=True) + 1e-12)
    return x * (x.shape[-1] ** 0.5 / length)

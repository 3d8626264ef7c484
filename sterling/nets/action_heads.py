"""What an action space needs of a policy: its number of outputs, and their distribution; and the
policy of soft actor-critics."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Key

from sterling.equations.factored_values import split_choices
from sterling.nets.distributions import (
    ActionDistribution,
    Categorical,
    ChoicesAndNumbers,
    MultiCategorical,
    Normal,
    TanhNormal,
)
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import action_mask
from sterling.problem.hybrid_action import HybridAction
from sterling.types import Mistake, Obs

FORBIDDEN_LOGIT = -1e9  # logit of a forbidden action: finite, so that gradients stay finite


class Actions(eqx.Module):
    """An action space as a policy needs it: the number of network outputs and their meaning."""

    kind: str = eqx.field(static=True)  # discrete, multi, box, hybrid (choices and numbers)
    sizes: tuple[int, ...] = eqx.field(static=True)  # choices of each part, or the box's shape
    numbers: int = eqx.field(static=True, default=0)  # beside the choices of a hybrid action

    @classmethod
    def from_space(cls, space: spaces.Space[Any]) -> Actions:
        """Read an action space. Raises :class:`Mistake` for spaces that no policy supports."""
        if isinstance(space, HybridAction):
            return cls("hybrid", space.choices, space.numbers)
        if isinstance(space, spaces.Discrete):
            return cls("discrete", (int(space.n),))
        if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)) and len(space.shape) > 1:
            raise Mistake(
                f"action spaces with more than one axis, as {space}, are not supported. "
                "Flatten it to one axis."
            )
        if isinstance(space, spaces.MultiDiscrete):
            return cls("multi", tuple(int(n) for n in space.nvec))
        if isinstance(space, spaces.MultiBinary):
            return cls("multi", (2,) * space.shape[0])
        if isinstance(space, spaces.Box):
            return cls("box", tuple(space.shape))
        raise Mistake(
            f"action spaces of type {type(space).__name__} are not supported. "
            "Use Discrete, MultiDiscrete, MultiBinary or Box."
        )

    @property
    def outputs(self) -> int:
        """The number of outputs that a policy network needs."""
        return math.prod(self.sizes) if self.kind == "box" else sum(self.sizes) + self.numbers

    @property
    def critic_sizes(self) -> tuple[int, int]:
        """A critic's action inputs and its outputs: a Box is an input, choices are outputs."""
        return (self.outputs, 1) if self.kind == "box" else (0, self.outputs)

    @property
    def choices(self) -> tuple[int, ...]:
        """The sizes of discrete choices; () for a Box."""
        return () if self.kind == "box" else self.sizes

    def shaped(self, action: Any) -> Any:
        """Reshape flat actions of a Box to its own shape; return discrete choices unchanged."""
        return action.reshape(*action.shape[:-1], *self.sizes) if self.kind == "box" else action

    def flat(self, action: Any) -> Any:
        """Flatten actions of a Box to one row, the inverse of :meth:`shaped`."""
        if self.kind != "box":
            return action
        return action.reshape(*action.shape[: action.ndim - len(self.sizes)], -1)

    def nothing(self, shape: tuple[int, ...]) -> Any:
        """Return zeros ``(*shape, ...)`` that stand for an action before the first step."""
        if self.kind == "box":
            return jnp.zeros((*shape, *self.sizes))
        if self.kind == "hybrid":
            return jnp.zeros((*shape, len(self.sizes) + self.numbers))
        return jnp.zeros((*shape, len(self.sizes)) if self.kind == "multi" else shape, jnp.int32)

    def encode(self, action: Any) -> Float[Array, "... outputs"]:
        """Encode actions as network inputs: boxes flattened, choices as concatenated one-hots."""
        if self.kind == "box":
            return self.flat(action)
        parts = [action] if self.kind == "discrete" else list(jnp.moveaxis(action, -1, 0))
        choices, numbers = parts[: len(self.sizes)], parts[len(self.sizes) :]
        hot = [jax.nn.one_hot(x, n) for x, n in zip(choices, self.sizes, strict=True)]
        return jnp.concatenate([*hot, *(x[..., None] for x in numbers)], -1)

    def distribution(
        self,
        outputs: Float[Array, "... outputs"],
        mask: Bool[Array, "... options"] | None = None,
        log_std: Float[Array, "outputs"] | None = None,
    ) -> ActionDistribution:
        """Return the policy's distribution. ``outputs`` are logits (forbidden where ``mask`` is
        False), or a Box's means with deviations ``log_std`` (default 0); for choices and numbers,
        logits and then means, of which the last entries of ``log_std`` are the deviations."""
        if self.kind == "box":
            spread = jnp.zeros(self.outputs) if log_std is None else log_std
            return Normal(outputs, jnp.broadcast_to(spread, outputs.shape))
        if self.kind == "hybrid":
            logits, means = jnp.split(outputs, [sum(self.sizes)], -1)
            logits = logits if mask is None else jnp.where(mask, logits, FORBIDDEN_LOGIT)
            spread = jnp.zeros(self.outputs) if log_std is None else log_std
            spread = jnp.broadcast_to(spread[-self.numbers :], means.shape)
            return ChoicesAndNumbers(self._choices(logits), Normal(means, spread))
        if mask is not None:
            outputs = jnp.where(mask, outputs, FORBIDDEN_LOGIT)
        if self.kind == "discrete":
            return Categorical(outputs)
        return self._choices(outputs)

    def _choices(self, logits: Float[Array, "... logits"]) -> MultiCategorical:
        return MultiCategorical(tuple(Categorical(x) for x in split_choices(logits, self.sizes)))


ONLINE = {  # what learns with actions of a kind
    "box": "sac, td3 or ppo",
    "discrete": "dqn, sac or ppo",
    "multi": "dqn, sac or ppo",
    "hybrid": "ppo",
}
OFFLINE = {  # from a log
    "box": "iql, cql or awac",
    "discrete": "cql, iql or awac",
    "multi": "bc",
    "hybrid": "ppo in the environment",
}

ASKED_FOR_GOALS = {  # from a log, whose goals are learned to be reached
    "box": "hiql, gciql or crl",
    "discrete": "hiql, gcivl or gcbc",
    "multi": "hiql, gcivl or gcbc",
    "hybrid": "ppo in the environment",
}


def supported_actions(
    name: str, space: spaces.Space[Any], kinds: tuple[str, ...], instead: dict[str, str]
) -> Actions:
    """Return the actions of a space, for the algorithm ``name`` that supports these kinds.

    Raises :class:`Mistake` for others, with what to use ``instead`` (one of the tables above).
    """
    actions = Actions.from_space(space)
    if actions.kind not in kinds:
        raise Mistake(f"{name} does not support {space} actions. Use {instead[actions.kind]}.")
    return actions


class SquashedPolicy(eqx.Module):
    """The policy of soft actor-critics, given the features of an observation: a squashed normal
    distribution, or for discrete actions a categorical one for each choice."""

    net: MLP
    actions: Actions = eqx.field(static=True)
    least: float = eqx.field(static=True, default=-20.0)  # log deviation's lower bound; upper: 2
    squashed: bool = eqx.field(static=True, default=False)  # into the bounds by tanh, not clipped

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        sizes: tuple[int, ...],
        actions: Actions,
        least: float = -20.0,
        *,
        activation: str = "relu",
    ) -> SquashedPolicy:
        """Create a policy with layers of ``sizes`` (features first) before the outputs."""
        outputs = actions.outputs * (2 if actions.kind == "box" else 1)
        return cls(MLP.uniform(key, (*sizes, outputs), activation), actions, least)

    def __call__(self, obs: Obs, features: Float[Array, "... features"]) -> Any:
        """Return a TanhNormal, or for discrete actions a Categorical or MultiCategorical."""
        outputs = self.net(features)
        if self.actions.kind != "box":
            return self.actions.distribution(outputs, action_mask(obs, self.actions.sizes))
        return self.squashed_normal(outputs)

    def squashed_normal(self, outputs: Float[Array, "... outputs"]) -> TanhNormal:
        """Return the distribution of a Box, given the network's outputs."""
        mean, log_std = jnp.split(outputs, 2, -1)
        if self.squashed:
            share = 0.5 * (1.0 + jnp.tanh(log_std))
            return TanhNormal(Normal(mean, self.least + (2.0 - self.least) * share))
        return TanhNormal(Normal(mean, jnp.clip(log_std, self.least, 2.0)))

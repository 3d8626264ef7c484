"""From features to a distribution over the action space."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Bool, Float

from sterling.nets.distributions import Categorical, MultiCategorical, Normal
from sterling.types import Mistake

IMPOSSIBLE = -1e9  # the logit of a forbidden action: finite, so that gradients stay finite


class Actions(eqx.Module):
    """What an action space asks of a policy: how many outputs, and what they mean."""

    kind: str = eqx.field(static=True)  # discrete, multi, box
    sizes: tuple[int, ...] = eqx.field(static=True)  # choices of each part, or the box's shape

    @classmethod
    def of(cls, space: spaces.Space[Any]) -> Actions:
        """Read an action space; raises :class:`Mistake` for one that no policy here covers."""
        if isinstance(space, spaces.Discrete):
            return cls("discrete", (int(space.n),))
        if isinstance(space, (spaces.MultiDiscrete, spaces.MultiBinary)) and len(space.shape) > 1:
            raise Mistake(f"a grid of choices, {space}, is not understood; make it one row")
        if isinstance(space, spaces.MultiDiscrete):
            return cls("multi", tuple(int(n) for n in space.nvec))
        if isinstance(space, spaces.MultiBinary):
            return cls("multi", (2,) * space.shape[0])
        if isinstance(space, spaces.Box):
            return cls("box", tuple(space.shape))
        raise Mistake(
            f"an action space of type {type(space).__name__} is not understood; "
            "use Discrete, MultiDiscrete, MultiBinary or Box"
        )

    @property
    def outputs(self) -> int:
        """Numbers a policy network must put out."""
        return math.prod(self.sizes) if self.kind == "box" else sum(self.sizes)

    def shaped(self, action: Any) -> Any:
        """The numbers of a box in its own shape; choices as they are."""
        return action.reshape(*action.shape[:-1], *self.sizes) if self.kind == "box" else action

    def flat(self, action: Any) -> Any:
        """The inverse: a box's numbers in one row."""
        if self.kind != "box":
            return action
        return action.reshape(*action.shape[: action.ndim - len(self.sizes)], -1)

    def nothing(self, shape: tuple[int, ...]) -> Any:
        """What stands for an action where there was none: zeros, ``(*shape, ...)``."""
        if self.kind == "box":
            return jnp.zeros((*shape, *self.sizes))
        return jnp.zeros((*shape, len(self.sizes)) if self.kind == "multi" else shape, jnp.int32)

    def codes(self, action: Any) -> Float[Array, "... outputs"]:
        """Actions as numbers for a network: boxes flat, choices one-hot side by side."""
        if self.kind == "box":
            return self.flat(action)
        parts = [action] if self.kind == "discrete" else list(jnp.moveaxis(action, -1, 0))
        hot = [jax.nn.one_hot(x, n) for x, n in zip(parts, self.sizes, strict=True)]
        return jnp.concatenate(hot, -1)

    def distribution(
        self,
        outputs: Float[Array, "... outputs"],
        mask: Bool[Array, "... outputs"] | None = None,
        log_std: Float[Array, "outputs"] | None = None,
    ) -> Categorical | MultiCategorical | Normal:
        """The policy: ``outputs`` are logits (masked where ``mask`` is False) or means."""
        if self.kind == "box":
            spread = jnp.zeros(self.outputs) if log_std is None else log_std
            return Normal(outputs, jnp.broadcast_to(spread, outputs.shape))
        if mask is not None:
            outputs = jnp.where(mask, outputs, IMPOSSIBLE)
        if self.kind == "discrete":
            return Categorical(outputs)
        cuts = [sum(self.sizes[: i + 1]) for i in range(len(self.sizes) - 1)]
        return MultiCategorical(tuple(Categorical(x) for x in jnp.split(outputs, cuts, -1)))

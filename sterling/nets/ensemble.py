"""Two action values instead of one: the smaller of them overestimates less (Fujimoto 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import keys
from sterling.nets.encoder import Encoder
from sterling.nets.mlp import MLP
from sterling.types import Obs


class Twins(eqx.Module):
    """Q_1 and Q_2. Continuous actions are an input, discrete ones (``actions`` > 1) an output.

    Two networks side by side and not one with an axis of two: on CPUs XLA multiplies plain
    matrices at least as fast as batches of them.
    """

    torso: Encoder
    first: MLP
    second: MLP

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        torso: Encoder,
        hidden: Sequence[int],
        inputs: int = 0,
        outputs: int = 1,
    ) -> Twins:
        """Twins on ``torso`` with ``inputs`` numbers of action going in, ``outputs`` values out."""
        sizes = (torso.size + inputs, *hidden, outputs)
        first, second = (MLP.uniform(keys.fold(key, n), sizes) for n in ("first", "second"))
        return cls(torso, first, second)

    def of_action(
        self, obs: Obs, action: Float[Array, "... inputs"]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Q_1(s, a) and Q_2(s, a) of continuous actions."""
        x = jnp.concatenate([self.torso(obs), action], -1)
        return self.first(x)[..., 0], self.second(x)[..., 0]

    def of_choices(
        self, obs: Obs
    ) -> tuple[Float[Array, "... outputs"], Float[Array, "... outputs"]]:
        """Q_1(s, .) and Q_2(s, .) of every discrete action."""
        features = self.torso(obs)
        return self.first(features), self.second(features)

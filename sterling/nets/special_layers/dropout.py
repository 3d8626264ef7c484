"""Dropout (Srivastava 2014): hidden units that a forward pass of training leaves out at random."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.types import Obs


def dropped(
    x: Float[Array, "... units"], rate: Float[Array, ""] | float, key: Key[Array, ""]
) -> Float[Array, "... units"]:
    """Return units that are 0 with probability ``rate`` below 1, each by a draw of its own; the
    others are divided by 1 - rate, so that no mean changes."""
    kept = jax.random.bernoulli(key, 1.0 - rate, x.shape)
    return jnp.where(kept, x / (1.0 - rate), jnp.zeros_like(x))


class DroppedCritics(eqx.Module):
    """An ensemble of critics in a forward pass with dropout: after each hidden linear layer, with
    other draws in every row and member (Hiraoka 2022). The same object draws the same again."""

    critics: CriticEnsemble
    rate: Float[Array, ""] | float  # probability that a unit is left out
    key: Key[Array, ""]

    @property
    def torso(self) -> Encoder:
        """The encoder of observations; it has no dropout."""
        return self.critics.torso

    def q_values(self, obs: Obs, action: Float[Array, "... inputs"]) -> Float[Array, "member ..."]:
        """Return every Q_i(s, a) of continuous actions."""
        x = jnp.concatenate([self.torso(obs), action], -1)
        count = self.critics.nets.layers[0].weight.shape[0]

        def each(net: MLP, key: Key[Array, ""]) -> Array:
            return net.apply(
                x, lambda y, i: dropped(y, self.rate, random_keys.fold(key, "layer", i))
            )

        keys = random_keys.split(self.key, "member", count)
        return jax.vmap(each)(self.critics.nets, keys)[..., 0]

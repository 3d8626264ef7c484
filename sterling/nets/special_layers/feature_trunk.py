"""The trunk of networks on features of pictures (Yarats 2021, arXiv:2107.09645, section 3.1)."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling.nets.mlp import MLP, Norm
from sterling.nets.obs_encoder import Encoder


class Trunk(eqx.Module):
    """tanh(norm(W h + b)): few numbers from the many features of pictures."""

    layer: MLP
    norm: Norm

    @classmethod
    def create(cls, key: Key[Array, ""], encoder: Encoder, size: int) -> Trunk:
        """Create a trunk of ``size`` outputs."""
        layer = MLP.orthogonal(key, (encoder.size, size))
        return cls(layer, Norm(jnp.ones(size), jnp.zeros(size), 1e-5))

    def __call__(self, features: Float[Array, "... features"]) -> Float[Array, "... n"]:
        """Return the outputs, in (-1, 1)."""
        return jnp.tanh(self.norm(self.layer(features)))


class TrunkCritics(eqx.Module):
    """Two critics Q_1 and Q_2 of continuous actions, on one trunk."""

    trunk: Trunk
    first: MLP
    second: MLP

    def __call__(
        self, features: Float[Array, "... features"], action: Float[Array, "... n"]
    ) -> Float[Array, "2 ..."]:
        """Return Q_1(h, a) and Q_2(h, a)."""
        x = jnp.concatenate([self.trunk(features), action], -1)
        return jnp.stack([self.first(x)[..., 0], self.second(x)[..., 0]])

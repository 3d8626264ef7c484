"""The mixer of QMIX: one value of a team that rises with the value of every agent (Rashid 2018).

"QMIX: monotonic value function factorisation", arXiv:1803.11485, section 4.1.

    Q_tot = |w2(s)|^T elu(|W1(s)|^T q + b1(s)) + b2(s)

W1, b1 and w2 are linear in the central state s, b2 is a network with one hidden layer. Weights are
not negative, so the joint action that is best for Q_tot is the best action of every agent alone.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.nets.mlp import MLP


class MonotoneMixer(eqx.Module):
    """Q_tot of the values of all agents, given the features of the central state."""

    first: MLP  # to W1, a row for each agent
    shift: MLP  # to b1
    last: MLP  # to w2
    base: MLP  # to b2

    @classmethod
    def create(cls, key: Key[Array, ""], agents: int, features: int, width: int) -> MonotoneMixer:
        """Create a mixer with ``width`` hidden units for states of so many ``features``."""

        def network(name: str, *sizes: int) -> MLP:
            return MLP.uniform(random_keys.fold(key, name), (features, *sizes))

        first, shift = network("first", agents * width), network("shift", width)
        return cls(first, shift, network("last", width), network("base", width, 1))

    def __call__(
        self, q: Float[Array, "... agent"], state: Float[Array, "... features"]
    ) -> Float[Array, "..."]:
        """Return Q_tot."""
        rows = self.first(state)
        weight = jnp.abs(rows).reshape(*rows.shape[:-1], q.shape[-1], -1)
        hidden = jax.nn.elu((q[..., None] * weight).sum(-2) + self.shift(state))
        return (hidden * jnp.abs(self.last(state))).sum(-1) + self.base(state)[..., 0]

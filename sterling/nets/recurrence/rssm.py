"""The recurrent state-space model: a world's hidden state, from observations or from a model alone
(Hafner 2019, PlaNet, arXiv:1811.04551; with choices for z, DreamerV2 and V3, arXiv:2301.04104).

    h_t = GRU(h_{t-1}, f(z_{t-1}, a_{t-1})),   z_t ~ q(h_t, x_t), or z_t ~ p(h_t) if x_t is not seen

States are ``s = (h, z)``, one vector; before the first row of an episode, state and action are 0.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys
from sterling.nets.distributions import OneHotGroups
from sterling.nets.mlp import MLP
from sterling.nets.recurrence.recurrent_network import GRU


class Rssm(eqx.Module):
    """The networks of the model; its numbers of a state are ``size``."""

    before: MLP  # f
    memory: GRU
    prior: MLP
    posterior: MLP
    groups: int = eqx.field(static=True)

    @classmethod
    def create(
        cls, key: Key[Array, ""], sizes: tuple[int, int], width: int, groups: int, classes: int
    ) -> Rssm:
        """Create a model; ``sizes`` are the numbers of an action and of an observation's features,
        ``width`` those of h and of hidden layers; z has ``groups`` choices of ``classes``."""
        (action, seen), z = sizes, groups * classes

        def net(name: str, shape: tuple[int, ...], *, inner: bool = False) -> MLP:
            own = random_keys.fold(key, name)
            return MLP.orthogonal(own, shape, "silu", activate_last=inner, layer_norm=True)

        return cls(
            net("before", (z + action, width), inner=True),
            GRU.create(random_keys.fold(key, "memory"), width, width),
            net("prior", (width, width, z)),
            net("posterior", (width + seen, width, width, z)),
            groups,
        )

    @property
    def size(self) -> int:
        """Return how many numbers a state has."""
        z = self.prior.layers[-1].weight.shape[1]
        return self.memory.size + z

    def observe(
        self,
        s: Float[Array, "... state"],
        action: Float[Array, "... action"],
        first: Bool[Array, "..."],
        seen: Float[Array, "... seen"],
        key: Key[Array, ""],
    ) -> tuple[Float[Array, "... state"], OneHotGroups]:
        """Return the states when ``seen`` is observed, and the distributions q of their z, given
        the states and actions before; ``first`` marks the first rows of episodes."""
        inputs = jnp.where(first[..., None], 0.0, jnp.concatenate([s, action], -1))
        h = self._next(inputs)
        logits = self.posterior(jnp.concatenate([h, seen], -1))
        q = OneHotGroups.mixed(logits, self.groups)
        return jnp.concatenate([h, q.sample(key)], -1), q

    def imagine(
        self,
        s: Float[Array, "... state"],
        action: Float[Array, "... action"],
        key: Key[Array, ""],
    ) -> Float[Array, "... state"]:
        """Return states drawn from the model, given the states and actions before."""
        h = self._next(jnp.concatenate([s, action], -1))
        z = OneHotGroups.mixed(self.prior(h), self.groups).sample(key)
        return jnp.concatenate([h, z], -1)

    def expected(self, s: Float[Array, "... state"]) -> OneHotGroups:
        """Return the distributions p that states' z have where nothing is seen."""
        return OneHotGroups.mixed(self.prior(s[..., : self.memory.size]), self.groups)

    def unroll(
        self,
        s: Float[Array, "env state"],
        action: Float[Array, "time env action"],
        first: Bool[Array, "time env"],
        seen: Float[Array, "time env seen"],
        key: Key[Array, ""],
    ) -> tuple[Float[Array, "time env state"], OneHotGroups]:
        """Return :meth:`observe` of each row of sequences, given the states before them and the
        actions that led to each row."""

        def step(s: Array, row: tuple[Array, ...]) -> tuple[Array, tuple[Array, OneHotGroups]]:
            s, q = self.observe(s, *row)
            return s, (s, q)

        keys = random_keys.split(key, "row", len(first))
        return jax.lax.scan(step, s, (action, first, seen, keys))[1]

    def _next(self, inputs: Float[Array, "... inputs"]) -> Float[Array, "... width"]:
        """Return h, given states and actions side by side."""
        h, rest = jnp.split(inputs, [self.memory.size], -1)
        return self.memory(h, self.before(rest))

"""Recurrent networks: a memory that is read and written step after step."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sterling import keys
from sterling.actor import Past
from sterling.nets.encoder import Encoder
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP, Linear, orthogonal
from sterling.types import Action, Obs, Spec


class GRU(eqx.Module):
    """A gated recurrent unit (Cho 2014, arXiv:1406.1078, with the reset gate after the product, as
    cuDNN has it):

        r, z = sigmoid(W x + U h + b)        n = tanh(W_n x + b_n + r (U_n h + c_n))
        h'   = (1 - z) n + z h
    """

    inputs: Linear  # to r, z and n side by side
    hidden: Linear

    @classmethod
    def create(cls, key: Key[Array, ""], size: int, width: int) -> GRU:
        """Orthogonal weights, those of the memory gate by gate; biases 0."""

        def weights(name: str, rows: int) -> Float[Array, "rows three_widths"]:
            raw = jax.random.normal(keys.fold(key, name), (3, rows, width))
            return jnp.concatenate([orthogonal(raw[gate]) for gate in range(3)], 1)

        zeros = jnp.zeros(3 * width)
        return cls(Linear(weights("inputs", size), zeros), Linear(weights("hidden", width), zeros))

    def __call__(
        self, hidden: Float[Array, "... width"], x: Float[Array, "... inputs"]
    ) -> Float[Array, "... width"]:
        """The memory after ``x``."""
        return self._after(hidden, self.inputs(x))

    def unroll(
        self,
        hidden: Float[Array, "env width"],
        x: Float[Array, "time env inputs"],
        begins: Bool[Array, "time env"],
    ) -> Float[Array, "time env width"]:
        """The memory after every row; where a row ``begins`` an episode it is 0 before it."""

        def step(hidden: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            given, first = row
            hidden = self._after(jnp.where(first[:, None], 0.0, hidden), given)
            return hidden, hidden

        return jax.lax.scan(step, hidden, (self.inputs(x), begins))[1]

    def _after(self, hidden: Array, given: Float[Array, "... gates"]) -> Array:
        """``given`` is W x + b of all gates."""
        own = self.hidden(hidden)
        reset, keep = (
            jax.nn.sigmoid(a + b)
            for a, b in zip(jnp.split(given, 3, -1)[:2], jnp.split(own, 3, -1)[:2], strict=True)
        )
        new = jnp.tanh(jnp.split(given, 3, -1)[2] + reset * jnp.split(own, 3, -1)[2])
        return (1.0 - keep) * new + keep * hidden


class Recurrent(eqx.Module):
    """A memory of what was seen, done and earned: the part that agents who remember share.

    h_t = GRU(h_{t-1}, tanh(W [features(s_t), a_{t-1}, r_{t-1}]))
    """

    torso: Encoder
    before: MLP
    memory: GRU
    actions: Actions = eqx.field(static=True)

    @staticmethod
    def parts(key: Key[Array, ""], spec: Spec, width: int) -> tuple[Encoder, MLP, GRU, Actions]:
        """Its fields, for a memory of ``width`` numbers."""
        torso, actions = Encoder.create(keys.fold(key, "torso"), spec.obs), Actions.of(spec.action)
        sizes = (torso.size + actions.outputs + 1, width)
        before = MLP.orthogonal(keys.fold(key, "before"), sizes, "tanh", 2**0.5, True)
        return torso, before, GRU.create(keys.fold(key, "memory"), width, width), actions

    def inputs(
        self, obs: Obs, action: Action, reward: Float[Array, "..."], first: Bool[Array, "..."]
    ) -> Float[Array, "... width"]:
        """What goes into the memory: observations, and actions and rewards of the step before.
        Where it is the ``first`` step, nothing was done."""
        done = jnp.where(first[..., None], 0.0, self.actions.codes(action))
        earned = jnp.where(first, 0.0, reward)[..., None]
        return self.before(jnp.concatenate([self.torso(obs), done, earned], -1))

    def recalled(self, past: Past, obs: Obs) -> Float[Array, "env width"]:
        """h_t, as whoever acts has it."""
        given = self.inputs(obs, past.action, past.reward, past.first)
        remembered: Any = past.memory
        return self.memory(remembered, given)

"""The LSTM, whose memory is its output and its cell side by side."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys
from sterling.nets.mlp import Linear, orthogonal_matrix

GATES = 4
FORGET_BIAS = 1.0  # so that memories last at first (Jozefowicz 2015)


class LSTM(eqx.Module):
    """A long short-term memory (Hochreiter 1997, with the forget gate of Gers 2000):

    i, f, o = sigmoid(W x + U h + b)        g = tanh(W_g x + U_g h + b_g)
    c' = f c + i g                          h' = o tanh(c')
    """

    inputs: Linear  # to i, f, o and g side by side
    hidden: Linear  # without a bias: the inputs' is enough

    @classmethod
    def create(cls, key: Key[Array, ""], size: int, width: int) -> LSTM:
        """Create a unit with orthogonal weights (each gate by itself), and zero biases but of the
        forget gate."""

        def weights(name: str, rows: int) -> Float[Array, "rows four_widths"]:
            raw = jax.random.normal(random_keys.fold(key, name), (GATES, rows, width))
            return jnp.concatenate([orthogonal_matrix(raw[gate]) for gate in range(GATES)], 1)

        bias = jnp.zeros(GATES * width).at[width : 2 * width].set(FORGET_BIAS)
        return cls(Linear(weights("inputs", size), bias), Linear(weights("hidden", width)))

    @property
    def size(self) -> int:
        """Return how many numbers the memory has: h, then c."""
        return 2 * self.hidden.weight.shape[0]

    def __call__(
        self, hidden: Float[Array, "... numbers"], x: Float[Array, "... inputs"]
    ) -> Float[Array, "... numbers"]:
        """Return the memory after input ``x``."""
        return self._after(hidden, self.inputs(x))

    def unroll(
        self,
        hidden: Float[Array, "env numbers"],
        x: Float[Array, "time env inputs"],
        begins: Bool[Array, "time env"],
    ) -> Float[Array, "time env numbers"]:
        """Return the memory after every row; before a row that ``begins`` an episode it is 0."""

        def step(hidden: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
            given, first = row
            hidden = self._after(jnp.where(first[:, None], 0.0, hidden), given)
            return hidden, hidden

        return jax.lax.scan(step, hidden, (self.inputs(x), begins))[1]

    def read(
        self, hidden: Float[Array, "... numbers"], x: Float[Array, "... inputs"]
    ) -> Float[Array, "... width"]:
        """Return the features of memories: h."""
        return jnp.split(hidden, 2, -1)[0]

    def _after(self, hidden: Array, given: Float[Array, "... gates"]) -> Array:
        """Return the next memory; ``given`` is W x + b of all gates."""
        h, cell = jnp.split(hidden, 2, -1)
        write, keep, show, new = jnp.split(given + self.hidden(h), GATES, -1)
        cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(write) * jnp.tanh(new)
        return jnp.concatenate([jax.nn.sigmoid(show) * jnp.tanh(cell), cell], -1)

"""Recurrent networks: a memory that is read and written step after step."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sterling import keys
from sterling.nets.mlp import Linear, orthogonal


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

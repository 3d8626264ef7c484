"""The linear recurrent unit: a diagonal complex recurrence, unrolled by an associative scan."""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Complex, Float, Key

from sterling import random_keys
from sterling.nets.mlp import Linear, orthogonal_matrix
from sterling.nets.recurrence.diagonal_scan import along, to_complex, to_real, unroll_diagonal

RADII = (0.9, 0.999)  # between which |lambda| begins: memories of 10 to 1,000 steps
MOST_PHASE = math.pi / 10.0  # largest initial phase of lambda per step


class LRU(eqx.Module):
    """A linear recurrent unit (Orvieto 2023, arXiv:2303.06349) with a gated output:

        lambda = exp(-exp(nu) + i exp(theta))          |lambda| < 1 whatever the parameters are
        h'     = lambda h + exp(log_gamma) B x         h complex, one number per unit
        y      = gelu(Re(C h') + D x)
        output = x + (W y + b) sigmoid(V y + c)

    nu, theta begin on a ring of :data:`RADII` and phases up to :data:`MOST_PHASE`, gamma as
    sqrt(1 - |lambda|^2), so that memories begin with the scale of the inputs.
    """

    nu: Float[Array, "width"]
    theta: Float[Array, "width"]
    log_gamma: Float[Array, "width"]
    inputs: Linear  # B: real parts, then imaginary parts
    outputs: Linear  # C: likewise, from both parts of h
    direct: Float[Array, "width"]  # D
    gate: Linear  # W and V side by side

    @classmethod
    def create(cls, key: Key[Array, ""], size: int, width: int) -> LRU:
        """Create a unit for ``size`` inputs, which must be ``width``."""
        assert size == width, "the output is added to the input"
        keys = {name: random_keys.fold(key, name) for name in ("radius", "phase", "b", "c", "d")}
        low, high = RADII
        share = jax.random.uniform(keys["radius"], (width,))
        square = low**2 + share * (high**2 - low**2)  # uniform on the ring's area
        phase = MOST_PHASE * (1.0 - jax.random.uniform(keys["phase"], (width,)))  # above 0
        b = jax.random.normal(keys["b"], (size, 2 * width)) * (0.5 / size) ** 0.5
        c = jax.random.normal(keys["c"], (2 * width, width)) * (1.0 / width) ** 0.5
        gate = jax.random.normal(random_keys.fold(key, "gate"), (2, width, width))
        gates = jnp.concatenate([orthogonal_matrix(gate[0]), orthogonal_matrix(gate[1])], 1)
        return cls(
            jnp.log(-0.5 * jnp.log(square)),
            jnp.log(phase),
            0.5 * jnp.log1p(-square),
            Linear(b),
            Linear(c),
            jax.random.normal(keys["d"], (width,)),
            Linear(gates, jnp.zeros(2 * width)),
        )

    @property
    def size(self) -> int:
        """Return how many numbers the memory has: real parts, then imaginary parts."""
        return 2 * self.nu.size

    def __call__(
        self, hidden: Float[Array, "... numbers"], x: Float[Array, "... inputs"]
    ) -> Float[Array, "... numbers"]:
        """Return the memory after input ``x``."""
        return to_real(along(self._decay(), x) * to_complex(hidden) + self._driven(x))

    def unroll(
        self,
        hidden: Float[Array, "env numbers"],
        x: Float[Array, "time env inputs"],
        begins: Bool[Array, "time env"],
    ) -> Float[Array, "time env numbers"]:
        """Return the memory after every row; before a row that ``begins`` an episode it is 0."""
        return unroll_diagonal(self._decay(), self._driven(x), hidden, begins)

    def read(
        self, hidden: Float[Array, "... numbers"], x: Float[Array, "... width"]
    ) -> Float[Array, "... width"]:
        """Return the features of memories and of the inputs that led to them."""
        y = jax.nn.gelu(self.outputs(hidden) + x * along(self.direct, x))
        linear, gate = jnp.split(self.gate(y), 2, -1)
        return x + linear * jax.nn.sigmoid(gate)

    def _decay(self) -> Complex[Array, "width"]:
        """Return lambda."""
        return jnp.exp(jax.lax.complex(-jnp.exp(self.nu), jnp.exp(self.theta)))

    def _driven(self, x: Float[Array, "... inputs"]) -> Complex[Array, "... width"]:
        """Return exp(log_gamma) B x."""
        gamma = jnp.exp(self.log_gamma)
        return to_complex(self.inputs(x) * along(jnp.concatenate([gamma, gamma]), x))

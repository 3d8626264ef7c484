"""The simplified state space layer (S5): a damped linear system in continuous time, sampled."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Float64, Key

from sterling import random_keys
from sterling.nets.mlp import Linear, orthogonal_matrix
from sterling.nets.recurrence.diagonal_scan import along, to_complex, to_real, unroll_diagonal

STEPS = (0.001, 0.1)  # between which the step sizes begin, evenly in their logarithms


class S5(eqx.Module):
    """One layer of S5 (Smith 2022, arXiv:2208.04933), with resets as in Lu 2023 (arXiv:2303.03982):

        dh/dt  = Lambda h + B x                       Lambda diagonal, h complex, one per unit
        h'     = exp(Lambda D) h + Lambda^-1 (exp(Lambda D) - 1) B x     held over a step of size D
        y      = 2 Re(C h') + d x                     for h and the conjugates that are left out
        output = x + g sigmoid(W g + w),              g = gelu(y)

    Lambda begins as the eigenvalues of HiPPO-N (:func:`normal_hippo`) with positive imaginary
    parts, B and C as Gaussian real matrices of the whole system in its eigenvectors. As these are
    orthonormal, that is to say as Gaussian complex ones. Every unit learns a step size D.

    Deviations from the papers: the real part of Lambda is -exp(log_damping), so that no memory
    grows whatever is learned; one layer, without normalisation, as ``width`` is one number.
    """

    log_damping: Float[Array, "width"]
    frequency: Float[Array, "width"]
    log_step: Float[Array, "width"]
    inputs: Linear  # B: real parts, then imaginary parts
    outputs: Linear  # 2 C: real parts, then negative imaginary parts
    direct: Float[Array, "width"]  # d
    gate: Linear  # W

    @classmethod
    def create(cls, key: Key[Array, ""], size: int, width: int) -> S5:
        """Create a layer for ``size`` inputs, which must be ``width``."""
        assert size == width, "the output is added to the input"
        keys = {name: random_keys.fold(key, name) for name in ("step", "b", "c", "d", "gate")}
        b = jax.random.normal(keys["b"], (size, 2 * width)) * (0.5 / size) ** 0.5
        c = jax.random.normal(keys["c"], (2 * width, width)) * (1.0 / width) ** 0.5
        gate = orthogonal_matrix(jax.random.normal(keys["gate"], (width, width)))
        low, high = np.log(STEPS)
        return cls(
            jnp.full(width, np.log(0.5), jnp.float32),
            jnp.asarray(hippo_frequencies(2 * width), jnp.float32),
            jax.random.uniform(keys["step"], (width,), minval=low, maxval=high),
            Linear(b),
            Linear(c),
            jax.random.normal(keys["d"], (width,)),
            Linear(gate, jnp.zeros(width)),
        )

    @property
    def size(self) -> int:
        """Return how many numbers the memory has: real parts, then imaginary parts."""
        return 2 * self.frequency.size

    def __call__(
        self, hidden: Float[Array, "... numbers"], x: Float[Array, "... inputs"]
    ) -> Float[Array, "... numbers"]:
        """Return the memory after input ``x``."""
        decay, given = self._sampled(x)
        return to_real(along(decay, x) * to_complex(hidden) + given)

    def unroll(
        self,
        hidden: Float[Array, "env numbers"],
        x: Float[Array, "time env inputs"],
        begins: Bool[Array, "time env"],
    ) -> Float[Array, "time env numbers"]:
        """Return the memory after every row; before a row that ``begins`` an episode it is 0."""
        return unroll_diagonal(*self._sampled(x), hidden, begins)

    def read(
        self, hidden: Float[Array, "... numbers"], x: Float[Array, "... width"]
    ) -> Float[Array, "... width"]:
        """Return the features of memories and of the inputs that led to them."""
        g = jax.nn.gelu(self.outputs(hidden) + x * along(self.direct, x))
        return x + g * jax.nn.sigmoid(self.gate(g))

    def _sampled(
        self, x: Float[Array, "... inputs"]
    ) -> tuple[Complex[Array, "width"], Complex[Array, "... width"]]:
        """Return exp(Lambda D), and what inputs held over a step add to the memory."""
        damping, step = -jnp.exp(self.log_damping), jnp.exp(self.log_step)
        rate = jax.lax.complex(damping, self.frequency)
        decay = jnp.exp(jax.lax.complex(damping * step, self.frequency * step))
        return decay, to_complex(self.inputs(x)) * along((decay - 1.0) / rate, x)


def normal_hippo(size: int) -> Float64[np.ndarray, "size size"]:
    """Return HiPPO-N, the normal part of HiPPO-LegS (Smith 2022, section 4.1, and Gu 2022):

    A_nn = -1/2,   A_nk = -sqrt((2n + 1)(2k + 1)) / 2 for n > k, and its negative for n < k,

    which is HiPPO-LegS plus a matrix of rank one.
    """
    root = np.sqrt(np.arange(size) + 0.5)
    below = np.tril(np.outer(root, root), -1)
    return below.T - below - 0.5 * np.eye(size)


def hippo_frequencies(size: int) -> Float64[np.ndarray, "half"]:
    """Return the positive imaginary parts of HiPPO-N's eigenvalues, the smallest first; ``size`` is
    even, and all real parts are -1/2."""
    skew = normal_hippo(size) + 0.5 * np.eye(size)
    return np.linalg.eigvalsh(1j * skew)[size // 2 :]  # the others are their negatives

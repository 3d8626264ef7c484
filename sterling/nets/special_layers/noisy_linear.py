"""Networks with noise on their weights, which explore (Fortunato 2018, arXiv:1706.10295).

    y = (mu_w + sigma_w * f(e_out) f(e_in)^T) x + mu_b + sigma_b * f(e_out)      (eqs. 9 to 11)
    f(e) = sign(e) sqrt|e|,   e standard normal: one number for every input and every output

computed as mu_w x + mu_b + f(e_out) * (sigma_w (f(e_in) * x) + sigma_b), so that rows may have
noise of their own. Means begin as in ``MLP.uniform``, deviations at ``sigma`` / sqrt(inputs).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jaxtyping import Array, Float, Key

from sterling.nets.mlp import ACTIVATIONS, HIDDEN, LAST_HIDDEN, MLP, Linear


class NoisyMLP(eqx.Module):
    """A multi-layer perceptron whose weights are normally distributed, by factorised noise."""

    mean: MLP
    deviation: MLP  # layers of the same shapes

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        sizes: Sequence[int],
        sigma: Float[Array, ""] | float = 0.5,
        activation: str = "relu",
        *,
        layer_norm: bool = False,
    ) -> NoisyMLP:
        """Create layers of ``sizes`` (inputs first). With ``layer_norm`` every hidden layer is
        normalised, without noise."""
        mean = MLP.uniform(key, sizes, activation, layer_norm=layer_norm)
        made = []
        for inputs, outputs in pairwise(sizes):
            start = jnp.asarray(sigma * inputs**-0.5)
            made.append(Linear(jnp.full((inputs, outputs), start), jnp.full(outputs, start)))
        return cls(mean, MLP(tuple(made), activation))

    def __call__(
        self, x: Float[Array, "... inputs"], key: Key[Array, ""] | None = None, shared: bool = True
    ) -> Float[Array, "... outputs"]:
        """Return the outputs with noise drawn from ``key``, the same in all rows, or independent in
        each without ``shared``; without a key those of the mean weights."""
        if key is None:
            return self.mean(x)
        rows = (1,) * (x.ndim - 1) if shared else x.shape[:-1]
        activation, last = ACTIVATIONS[self.mean.activation], len(self.mean.layers) - 1
        noise = iter(self._noise(key, rows))
        layers = zip(self.mean.layers, self.deviation.layers, strict=True)
        for index, (mean, deviation) in enumerate(layers):
            x = mean(x) + deviation(next(noise) * x) * next(noise)
            if index < last:
                x = activation(self.mean.norms[index](x) if self.mean.norms else x)
                x = checkpoint_name(x, LAST_HIDDEN if index == last - 1 else HIDDEN)
        return x

    def _noise(self, key: Key[Array, ""], rows: tuple[int, ...]) -> list[Float[Array, "... units"]]:
        """Return f(e) of the first layer's inputs, of its outputs, of the second's inputs ..."""
        counts = [count for layer in self.mean.layers for count in layer.weight.shape]
        normal = jax.random.normal(key, (*rows, sum(counts)))
        scaled = jnp.sign(normal) * jnp.sqrt(jnp.abs(normal))
        ends = [sum(counts[: index + 1]) for index in range(len(counts) - 1)]
        return jnp.split(scaled, ends, -1)

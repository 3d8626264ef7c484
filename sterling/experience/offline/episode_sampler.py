"""Sample the rows of a dataset with unequal probabilities of its episodes."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys as named
from sterling.data.dataset import Dataset
from sterling.data.episode_returns import episode_probabilities


class EpisodeSampler(eqx.Module):
    """The episodes' positions in a dataset, to sample them with unequal probabilities."""

    share: Float[Array, "episode"]  # cumulated probabilities
    begin: Int[Array, "episode"]
    length: Int[Array, "episode"]

    @classmethod
    def from_dataset(cls, dataset: Dataset, sampling: str) -> EpisodeSampler | None:
        """Create the sampler; None if all rows have the same probability."""
        share = episode_probabilities(dataset, sampling)
        if share is None:
            return None
        begin = np.cumsum(dataset.lengths) - dataset.lengths
        whole = (jnp.asarray(x, jnp.int32) for x in (begin, dataset.lengths))
        return cls(jnp.asarray(np.cumsum(share), jnp.float32), *whole)

    def draw(self, key: Key[Array, ""], shape: tuple[int, ...]) -> Int[Array, "..."]:
        """Draw rows: an episode by its probability, then one of its rows uniformly."""
        which, where = named.split(key, "episode", 2)
        drawn = jax.random.uniform(which, shape) * self.share[-1]
        episode = jnp.searchsorted(self.share, drawn, side="right").astype(jnp.int32)
        episode = jnp.minimum(episode, self.share.size - 1)
        within = jax.random.uniform(where, shape) * self.length[episode].astype(jnp.float32)
        return self.begin[episode] + jnp.minimum(within.astype(jnp.int32), self.length[episode] - 1)

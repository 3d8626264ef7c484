"""State-action embeddings learned from dynamics, and networks that read them (SALE; Fujimoto 2023,
arXiv:2306.02451, section 4.1)."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.types import Obs, Spec


def average_l1_norm(x: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Return x / max(mean |x|, 1e-8) over the last axis: numbers whose mean size is 1 (eq. 3)."""
    return x / jnp.maximum(jnp.mean(jnp.abs(x), -1, keepdims=True), 1e-8)


class StateActionEmbedding(eqx.Module):
    """Embeddings z^s = f(s) and z^sa = g(z^s, a). ``torso`` is a part of f: it encodes images, and
    has no parameters for vectors."""

    torso: Encoder
    state: MLP  # f
    pair: MLP  # g

    @classmethod
    def create(
        cls, key: Key[Array, ""], spec: Spec, inputs: int, config: Any
    ) -> StateActionEmbedding:
        """Create embeddings of observations and ``inputs`` action numbers. ``config`` has the
        fields embedding, width, depth and activation."""
        size = config.embedding
        torso = Encoder.create(random_keys.fold(key, "torso"), spec)
        hidden = torso.hidden_sizes(config.width, config.depth)
        f, g = (
            MLP.uniform(random_keys.fold(key, name), (into, *hidden, size), config.activation)
            for name, into in (("state", torso.size), ("pair", size + inputs))
        )
        return cls(torso, f, g)

    @property
    def size(self) -> int:
        """The numbers of an embedding."""
        return int(self.pair.layers[-1].weight.shape[-1])

    def __call__(
        self, obs: Obs
    ) -> tuple[Float[Array, "... features"], Float[Array, "... embedding"]]:
        """Return the torso's features and z^s of observations."""
        features = self.torso(obs)
        return features, average_l1_norm(self.state(features))

    def of_pair(
        self, state: Float[Array, "... embedding"], action: Float[Array, "... inputs"]
    ) -> Float[Array, "... embedding"]:
        """Return z^sa, the prediction of the next state's z^s."""
        return self.pair(jnp.concatenate([state, action], -1))


class EmbeddedNetwork(eqx.Module):
    """A network whose input is one linear layer of its own, normalised, beside embeddings."""

    first: MLP
    rest: MLP

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        inputs: int,
        embeddings: tuple[int, ...],
        sizes: tuple[int, ...],
        activation: str,
        *,
        layer_norm: bool = False,
    ) -> EmbeddedNetwork:
        """Create one for ``inputs`` numbers beside ``embeddings`` of such sizes. Its first layer
        has as many units as the first of them; ``sizes`` are those of all others."""
        first_key, rest_key = (random_keys.fold(key, name) for name in ("first", "rest"))
        first = MLP.uniform(first_key, (inputs, embeddings[0]), activation)
        sizes = (embeddings[0] + sum(embeddings), *sizes)
        return cls(first, MLP.uniform(rest_key, sizes, activation, layer_norm=layer_norm))

    def __call__(
        self, x: Float[Array, "... inputs"], *embeddings: Float[Array, "... embedding"]
    ) -> Float[Array, "... outputs"]:
        """Apply all layers."""
        return self.rest(jnp.concatenate([average_l1_norm(self.first(x)), *embeddings], -1))


class EmbeddedCritics(eqx.Module):
    """Two critics Q_1 and Q_2 of continuous actions, which read z^sa and z^s."""

    first: EmbeddedNetwork
    second: EmbeddedNetwork

    @classmethod
    def create(
        cls, key: Key[Array, ""], embedding: StateActionEmbedding, inputs: int, config: Any
    ) -> EmbeddedCritics:
        """Create critics of ``inputs`` action numbers. ``config`` has the fields of embeddings and
        layer_norm."""
        torso, size = embedding.torso, embedding.size
        sizes = (*torso.hidden_sizes(config.width, config.depth), 1)
        first, second = (
            EmbeddedNetwork.create(
                random_keys.fold(key, name),
                torso.size + inputs,
                (size, size),
                sizes,
                config.activation,
                layer_norm=config.layer_norm,
            )
            for name in ("first", "second")
        )
        return cls(first, second)

    def __call__(
        self, embedding: StateActionEmbedding, obs: Obs, action: Float[Array, "... inputs"]
    ) -> Float[Array, "2 ..."]:
        """Return Q_1(s, a) and Q_2(s, a) with these embeddings."""
        features, state = embedding(obs)
        inputs = jnp.concatenate([features, action], -1), embedding.of_pair(state, action), state
        return jnp.stack([self.first(*inputs)[..., 0], self.second(*inputs)[..., 0]])

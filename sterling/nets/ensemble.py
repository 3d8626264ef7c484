"""Several action values instead of one: the smallest of them overestimates less (Fujimoto 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.nets.encoder import Encoder
from sterling.nets.mlp import MLP
from sterling.types import Obs


class Twins(eqx.Module):
    """Q_1 and Q_2. Continuous actions are an input, discrete ones (``actions`` > 1) an output.

    Two networks side by side and not one with an axis of two: on CPUs XLA multiplies plain
    matrices at least as fast as batches of them.
    """

    torso: Encoder
    first: MLP
    second: MLP

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        torso: Encoder,
        hidden: Sequence[int],
        inputs: int = 0,
        outputs: int = 1,
        *,
        layer_norm: bool = False,
    ) -> Twins:
        """Twins on ``torso`` with ``inputs`` numbers of action going in, ``outputs`` values out."""
        sizes = (torso.size + inputs, *hidden, outputs)
        first, second = (
            MLP.uniform(keys.fold(key, name), sizes, layer_norm=layer_norm)
            for name in ("first", "second")
        )
        return cls(torso, first, second)

    def of_action(
        self, obs: Obs, action: Float[Array, "... inputs"]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Q_1(s, a) and Q_2(s, a) of continuous actions."""
        return self.of_features(self.torso(obs), action)

    def of_features(
        self, features: Float[Array, "... features"], action: Float[Array, "... inputs"]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """The same of observations that went through the torso."""
        x = jnp.concatenate([features, action], -1)
        return self.first(x)[..., 0], self.second(x)[..., 0]

    def of_choices(
        self, obs: Obs
    ) -> tuple[Float[Array, "... outputs"], Float[Array, "... outputs"]]:
        """Q_1(s, .) and Q_2(s, .) of every discrete action."""
        features = self.torso(obs)
        return self.first(features), self.second(features)


class Ensemble(eqx.Module):
    """Q_1 ... Q_N on one torso, for many members: one batch of networks, compiled once."""

    torso: Encoder
    nets: MLP  # every leaf is ``(member, ...)``

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        torso: Encoder,
        hidden: Sequence[int],
        inputs: int = 0,
        outputs: int = 1,
        *,
        members: int,
        layer_norm: bool = False,
    ) -> Ensemble:
        """``members`` networks that differ in nothing but their first weights."""
        sizes = (torso.size + inputs, *hidden, outputs)
        make = jax.vmap(lambda key: MLP.uniform(key, sizes, layer_norm=layer_norm))
        return cls(torso, make(keys.deal(key, "member", members)))

    def of_action(self, obs: Obs, action: Float[Array, "... inputs"]) -> Float[Array, "member ..."]:
        """Q_i(s, a) of continuous actions."""
        x = jnp.concatenate([self.torso(obs), action], -1)
        return jax.vmap(lambda net: net(x)[..., 0])(self.nets)

    def slopes(
        self, obs: Obs, action: Float[Array, "batch inputs"]
    ) -> Float[Array, "member batch inputs"]:
        """grad_a Q_i(s, a) of continuous actions."""
        features = self.torso(obs)

        def total(net: MLP, action: Float[Array, "batch inputs"]) -> Float[Array, ""]:
            return jnp.sum(net(jnp.concatenate([features, action], -1)))

        return jax.vmap(jax.grad(total, argnums=1), (0, None))(self.nets, action)

    def of_choices(self, obs: Obs) -> Float[Array, "member ... outputs"]:
        """Q_i(s, .) of every discrete action."""
        features = self.torso(obs)
        return jax.vmap(lambda net: net(features))(self.nets)

    def members(self, index: Int[Array, "some"]) -> Ensemble:
        """Those members alone, on the same torso."""
        return Ensemble(self.torso, jax.tree.map(lambda x: x[index], self.nets))

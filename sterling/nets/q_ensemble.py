"""Ensembles of critics: the minimum of several Q-functions overestimates less (Fujimoto 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.nets.ensemble import Ensemble
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.types import Obs


class TwinCritics(eqx.Module):
    """Two critics Q_1 and Q_2. Continuous actions are an input, discrete ones the outputs.

    They are two networks, not one with an axis of two: on CPUs XLA multiplies plain matrices at
    least as fast as batches of them.
    """

    torso: Encoder
    first: MLP
    second: MLP
    choices: tuple[int, ...] = eqx.field(static=True)  # sizes of discrete choices; () for a Box

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
        activation: str = "relu",
        choices: tuple[int, ...] = (),
    ) -> TwinCritics:
        """Create critics on ``torso`` with ``inputs`` action numbers and ``outputs`` values, those
        of ``choices`` side by side."""
        sizes = (torso.size + inputs, *hidden, outputs)
        first, second = (
            MLP.uniform(random_keys.fold(key, name), sizes, activation, layer_norm=layer_norm)
            for name in ("first", "second")
        )
        return cls(torso, first, second, choices)

    def q_values(
        self, obs: Obs, action: Float[Array, "... inputs"]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Return Q_1(s, a) and Q_2(s, a) of continuous actions."""
        return self.q_from_features(self.torso(obs), action)

    def q_from_features(
        self, features: Float[Array, "... features"], action: Float[Array, "... inputs"]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Return Q_1(s, a) and Q_2(s, a), given the torso's features of the observations."""
        x = jnp.concatenate([features, action], -1)
        return self.first(x)[..., 0], self.second(x)[..., 0]

    def all_q_values(
        self, obs: Obs
    ) -> tuple[Float[Array, "... outputs"], Float[Array, "... outputs"]]:
        """Return Q_1(s, .) and Q_2(s, .) of every discrete action."""
        features = self.torso(obs)
        return self.first(features), self.second(features)


class CriticEnsemble(eqx.Module):
    """Many critics Q_1 ... Q_N on one torso, as one batch of networks that is compiled once."""

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
        activation: str = "relu",
    ) -> CriticEnsemble:
        """Create ``members`` networks that differ only in their initial weights."""
        sizes = (torso.size + inputs, *hidden, outputs)
        create = partial(MLP.uniform, sizes=sizes, activation=activation, layer_norm=layer_norm)
        return cls(torso, Ensemble.create(key, members, create).nets)

    def q_values(self, obs: Obs, action: Float[Array, "... inputs"]) -> Float[Array, "member ..."]:
        """Return every Q_i(s, a) of continuous actions."""
        return self.outputs(obs, action)[..., 0]

    def q_from_features(
        self, features: Float[Array, "... features"], action: Float[Array, "... inputs"]
    ) -> Float[Array, "member ..."]:
        """Return every Q_i(s, a), given the torso's features of the observations."""
        x = jnp.concatenate([features, action], -1)
        return Ensemble(self.nets)(x)[..., 0]

    def outputs(
        self, obs: Obs, action: Float[Array, "... inputs"]
    ) -> Float[Array, "member ... outputs"]:
        """Return all outputs of every member, such as quantiles, for continuous actions."""
        x = jnp.concatenate([self.torso(obs), action], -1)
        return Ensemble(self.nets)(x)

    def action_gradients(
        self, obs: Obs, action: Float[Array, "batch inputs"]
    ) -> Float[Array, "member batch inputs"]:
        """Return the gradients grad_a Q_i(s, a) of every member with respect to the actions."""
        features = self.torso(obs)

        def total(net: MLP, action: Float[Array, "batch inputs"]) -> Float[Array, ""]:
            return jnp.sum(net(jnp.concatenate([features, action], -1)))

        return jax.vmap(jax.grad(total, argnums=1), (0, None))(self.nets, action)

    def all_q_values(self, obs: Obs) -> Float[Array, "member ... outputs"]:
        """Return every Q_i(s, .) of all discrete actions."""
        return Ensemble(self.nets)(self.torso(obs))

    def take_members(self, index: Int[Array, "some"]) -> CriticEnsemble:
        """Return an ensemble of the members at ``index``, on the same torso."""
        return CriticEnsemble(self.torso, Ensemble(self.nets).take(index).nets)

"""BRO's networks: an actor, an explorer beside it, critics (Nauman 2024, arXiv:2405.16158)."""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.nets.action_heads import Actions, SquashedPolicy
from sterling.nets.distributions import Normal, TanhNormal
from sterling.nets.obs_encoder import Encoder
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.nets.special_layers.residual_mlp import BroNet
from sterling.types import Obs

LEAST = -10.0  # bound of the actor's log deviation
GAIN, UNIT_GAIN, SHIFT_GAIN = math.sqrt(2.0), 1.0, 0.01  # of the layers that begin as outputs


class OptimisticNetworks(eqx.Module):
    """A policy that is a squashed normal (mu, sigma); critics; an explorer: the same policy with
    (mu + f(features, mu), c sigma)."""

    actor: SquashedPolicy  # its net is a BroNet
    explorer: BroNet  # f
    critics: CriticEnsemble  # of BroNets, with a leading axis of members

    @classmethod
    def create(
        cls, key: Key[Array, ""], torso: Encoder, actions: Actions, config: Any
    ) -> OptimisticNetworks:
        """Create networks on ``torso``, of a Config with ``width``, ``blocks``, ``critic_width``,
        ``critic_blocks``, ``members``, ``quantiles`` (outputs of a critic) and ``activation``.
        Initially f is about 0."""
        numbers, kind = actions.outputs, config.activation
        names = "actor", "explorer", "critics"
        actor_key, explorer_key, critic_key = (random_keys.fold(key, name) for name in names)
        sizes, heads = (torso.size, config.width), ((numbers, GAIN), (numbers, UNIT_GAIN))
        net = BroNet.create(actor_key, sizes, heads, config.blocks, kind)
        sizes, shift = (torso.size + numbers, config.width), ((numbers, SHIFT_GAIN),)
        explorer = BroNet.create(explorer_key, sizes, shift, config.blocks, kind, bias=False)
        wide, outputs = (torso.size + numbers, config.critic_width), ((config.quantiles, GAIN),)
        blocks = config.critic_blocks
        make = jax.vmap(lambda key: BroNet.create(key, wide, outputs, blocks, kind))
        critics = CriticEnsemble(
            torso, make(random_keys.split(critic_key, "member", config.members))
        )
        return cls(SquashedPolicy(net, actions, LEAST, squashed=True), explorer, critics)

    def exploring_policy(
        self, obs: Obs, multiplier: Float[Array, ""] | float
    ) -> tuple[TanhNormal, Float[Array, "..."]]:
        """Return the explorer's distribution, with c = ``multiplier``, and the KL, in nats, that it
        would have from the actor's with c = 1: sum f^2 / (2 sigma^2)."""
        features = self.critics.torso(obs)
        policy = self.actor(obs, features).normal
        shift = self.explorer(jnp.concatenate([features, policy.mean], -1))
        moved = Normal(policy.mean + shift, policy.log_std)
        narrow = moved.log_std + jnp.log(jnp.asarray(multiplier, jnp.float32))
        return TanhNormal(Normal(moved.mean, narrow)), moved.kl(policy)

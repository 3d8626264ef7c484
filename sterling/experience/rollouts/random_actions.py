"""Uniformly random actions in place of an actor's own, to fill a replay buffer before learning."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from sterling import random_keys as named
from sterling.actor import Past
from sterling.experience import acting
from sterling.nets.action_heads import Actions
from sterling.nets.obs_encoder import action_mask
from sterling.problem.action_choices import ACTION_MASK
from sterling.types import Action, Obs, World


class RandomActor(eqx.Module):
    """Acts uniformly at random among the allowed actions; boxes are sampled in [-1, 1].

    ``actor``, which need not plan for it, still updates its memory and records its extras, for the
    actions really taken.
    """

    actor: Any
    world: World = eqx.field(static=True)
    recorded: bool = eqx.field(static=True, default=False)  # record the actor's extras

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> Any:
        """Return the actor's initial memory."""
        return acting.initial_memory(self.actor, envs, keys)

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, Any, dict[str, Array]]:
        """Return random actions, the actor's new memory and its extras."""
        inner = named.fold_each(keys, "actor")
        _, memory, extras = acting.choose(self.actor, past, obs, inner, explore)
        return self._drawn(obs, keys), memory, extras

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """Return random actions; with ``recorded``, the actor's extras too."""
        extras: dict[str, Array] = {}
        if self.recorded:
            inner = named.fold_each(keys, "actor")
            extras = acting.choose(self.actor, None, obs, inner, explore)[2]
        return self._drawn(obs, keys), extras

    def _drawn(self, obs: Obs, keys: Key[Array, "seed"]) -> Action:
        actions, envs = Actions.from_space(self.world.spec.action), self.world.spec.envs

        def choose(obs: Obs, key: Key[Array, ""]) -> Action:
            if actions.kind == "box":
                return jax.random.uniform(key, (envs, *actions.sizes), minval=-1.0, maxval=1.0)
            outputs = jnp.zeros((envs, actions.outputs))
            if self.world.spec.agents is not None and isinstance(obs, dict) and ACTION_MASK in obs:
                # the masks of all agents, concatenated
                obs = {**obs, ACTION_MASK: obs[ACTION_MASK].reshape(outputs.shape)}
            return actions.distribution(outputs, action_mask(obs, actions.sizes)).sample(key)

        return jax.vmap(choose)(obs, keys)

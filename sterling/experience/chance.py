"""Random actions in place of an actor's own: how a replay is filled before anything is learned."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from sterling import keys as named
from sterling.actor import Past
from sterling.experience import acting
from sterling.nets.encoder import action_mask
from sterling.nets.heads import Actions
from sterling.types import Action, Obs, World


class Chance(eqx.Module):
    """Acts uniformly at random among what is allowed, whatever ``actor`` would do; boxes are
    [-1, 1]. What ``actor`` remembers and records, it does of what was really done."""

    actor: Any
    world: World = eqx.field(static=True)
    recorded: bool = eqx.field(static=True, default=False)  # what the actor records is wanted

    def memory(self, envs: int, keys: Key[Array, "seed"]) -> Any:
        """The actor's."""
        return acting.memory_of(self.actor, envs, keys)

    def recall(
        self, past: Past, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, Any, dict[str, Array]]:
        """A random action beside what the actor remembers."""
        inner = named.fold_each(keys, "actor")
        _, memory, extras = acting.choose(self.actor, past, obs, inner, explore)
        return self._drawn(obs, keys), memory, extras

    def act(
        self, obs: Obs, keys: Key[Array, "seed"], explore: bool
    ) -> tuple[Action, dict[str, Array]]:
        """A random action."""
        extras: dict[str, Array] = {}
        if self.recorded:
            inner = named.fold_each(keys, "actor")
            extras = acting.choose(self.actor, None, obs, inner, explore)[2]
        return self._drawn(obs, keys), extras

    def _drawn(self, obs: Obs, keys: Key[Array, "seed"]) -> Action:
        actions, envs = Actions.of(self.world.spec.action), self.world.spec.envs

        def choose(obs: Obs, key: Key[Array, ""]) -> Action:
            if actions.kind == "box":
                return jax.random.uniform(key, (envs, *actions.sizes), minval=-1.0, maxval=1.0)
            outputs, mask = jnp.zeros((envs, actions.outputs)), action_mask(obs)
            if mask is not None and self.world.spec.agents is not None:
                mask = mask.reshape(outputs.shape)  # the agents' rows side by side
            return actions.distribution(outputs, mask).sample(key)

        return jax.vmap(choose)(obs, keys)

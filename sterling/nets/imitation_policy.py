"""The policy of imitation learners, with a finite likelihood for every action of a dataset."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling.nets.action_heads import Actions
from sterling.nets.distributions import ActionDistribution
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import action_mask
from sterling.types import Action, Obs


class Policy(eqx.Module):
    """pi(.|s), given the features of an observation.

    For a Box it is a normal distribution with mean tanh(network) and one learned deviation per
    action dimension, so that actions on the edge of the space have a finite likelihood (Kostrikov
    2022, appendix B). For discrete choices it is categorical, over the allowed ones.
    """

    net: MLP
    log_std: Float[Array, "n"] | None
    actions: Actions = eqx.field(static=True)

    @classmethod
    def create(
        cls,
        key: Key[Array, ""],
        sizes: tuple[int, ...],
        actions: Actions,
        *,
        activation: str = "relu",
        layer_norm: bool = False,
    ) -> Policy:
        """Create a policy with layers of ``sizes`` (features first) before the outputs."""
        net = MLP.uniform(key, (*sizes, actions.outputs), activation, layer_norm=layer_norm)
        return cls(net, jnp.zeros(actions.outputs) if actions.kind == "box" else None, actions)

    def __call__(self, obs: Obs, features: Float[Array, "... features"]) -> ActionDistribution:
        """Return the distribution over actions; those of a Box are flat."""
        outputs = self.net(features)
        if self.log_std is None:
            return self.actions.distribution(outputs, action_mask(obs, self.actions.sizes))
        log_std = jnp.clip(self.log_std, -5.0, 2.0)
        return self.actions.distribution(jnp.tanh(outputs), log_std=log_std)

    def act(
        self, obs: Obs, features: Float[Array, "... features"], key: Key[Array, ""], explore: bool
    ) -> Action:
        """Return a sample, or the mode without ``explore``, in the space's shape and bounds."""
        pi = self(obs, features)
        action = pi.sample(key) if explore else pi.mode()
        if self.log_std is None:
            return action
        return jnp.clip(action, -1.0, 1.0).reshape(*action.shape[:-1], *self.actions.sizes)

    def log_prob(
        self, obs: Obs, features: Float[Array, "... features"], action: Action
    ) -> Float[Array, "..."]:
        """Return log pi(a|s) of logged actions, given in the space's own shape."""
        if self.log_std is not None:
            action = action.reshape(*features.shape[:-1], -1)
        return self(obs, features).log_prob(action)

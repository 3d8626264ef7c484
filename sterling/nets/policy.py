"""The policy of learners that imitate: a likelihood for every action that a log may hold."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling.nets.distributions import Categorical, MultiCategorical, Normal
from sterling.nets.encoder import action_mask
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.types import Action, Obs


class Policy(eqx.Module):
    """pi(.|s), from the features of an observation.

    Boxes: a normal around tanh of the network with one learned deviation for each number, so that
    actions on the edge of the space have a finite likelihood (Kostrikov 2022, appendix B).
    Choices: categorical, among the allowed ones.
    """

    net: MLP
    log_std: Float[Array, "n"] | None
    actions: Actions = eqx.field(static=True)

    @classmethod
    def create(cls, key: Key[Array, ""], sizes: tuple[int, ...], actions: Actions) -> Policy:
        """A perceptron with layers of ``sizes`` (features first) before the outputs."""
        net = MLP.uniform(key, (*sizes, actions.outputs))
        return cls(net, jnp.zeros(actions.outputs) if actions.kind == "box" else None, actions)

    def __call__(
        self, obs: Obs, features: Float[Array, "... features"]
    ) -> Categorical | MultiCategorical | Normal:
        """The distribution over actions; boxes are flat."""
        outputs = self.net(features)
        if self.log_std is None:
            return self.actions.distribution(outputs, action_mask(obs))
        log_std = jnp.clip(self.log_std, -5.0, 2.0)
        return self.actions.distribution(jnp.tanh(outputs), log_std=log_std)

    def act(
        self, obs: Obs, features: Float[Array, "... features"], key: Key[Array, ""], explore: bool
    ) -> Action:
        """A sample or the mode, in the space's own shape and within it."""
        pi = self(obs, features)
        action = pi.sample(key) if explore else pi.mode()
        if self.log_std is None:
            return action
        return jnp.clip(action, -1.0, 1.0).reshape(*action.shape[:-1], *self.actions.sizes)

    def log_prob(
        self, obs: Obs, features: Float[Array, "... features"], action: Action
    ) -> Float[Array, "..."]:
        """log pi(a|s) of logged actions in the space's own shape."""
        if self.log_std is not None:
            action = action.reshape(*features.shape[:-1], -1)
        return self(obs, features).log_prob(action)

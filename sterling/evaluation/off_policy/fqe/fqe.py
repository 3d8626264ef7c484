"""Fitted Q evaluation (Le 2019, arXiv:1903.08738): estimate a policy's value by regression on a
dataset.

    target   y   = r + g V'(s'),    V'(s) = E_{a ~ pi(.|s)} Q'(s, a)
    loss     L   = 1/2 sum_m E[ c_m (Q_m(s, a) - y_m)^2 ]
    value    V   = mean over start states of E_{a ~ pi} Q'(s, a)

g is gamma times the world's discount: 0 at a termination; a truncation bootstraps, so the value is
that without time limits. The target network Q' follows Q by ``tau`` per update; for discrete
actions V' is the exact sum if the policy has probabilities, otherwise one sample per update.
``members`` networks learn side by side, each on its own resample of the episodes with counts c_m
(Hao 2021, arXiv:2102.03607): their spread is the uncertainty from data and initialisation. With
``policy=None`` Q ignores the action, and V is that of the behaviour policy (TD on its own states).

Deviations: V' is clipped to what the dataset's smallest and largest reward would give for ever (or
0, where the world terminates): regression on its own predictions for actions that were never logged
can diverge, and true values cannot exceed these bounds. Q' moves slowly instead of being the last
regression's result. Q is written as middle + scale x network, with the mean and deviation of the
dataset's returns, so learning starts at the behaviour policy's value, and too few updates bias
towards it. The step size falls linearly to 0, and the reported value is that of Q'. Evidence:
benchmarks/results/offpolicy.md.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.value_losses import td_target
from sterling.evaluation.off_policy.policy_probabilities import Policy, action_log_probs
from sterling.field_types import Count, Depth, NotNegative, Share
from sterling.nets.action_heads import Actions
from sterling.nets.ensemble import Ensemble
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.running_statistics import ObsNormaliser
from sterling.types import Action, Obs, Record, Signals, Spec, config


@config
class Config:
    """Sizes follow Fu 2021 (arXiv:2103.16596), except the width, which suits several members."""

    lr: NotNegative = 3e-4  # Adam's step size at the start
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.0  # Q' moves by this share per update; 0: five horizons over all updates
    middle: float = 0.0  # Q's initial value: the dataset's mean return
    low: float = -math.inf  # lower bound of values; set from the dataset
    high: float = math.inf  # upper bound of values; set from the dataset
    scale: float = 1.0  # the networks' unit: the deviation of the dataset's returns
    updates: int = 10_000  # planned
    batch: Count = 256  # transitions per update
    members: Count = 5  # networks
    width: Count = 128  # units per hidden layer
    depth: Depth = (
        2  # hidden layers, for vector observations; 0: linear, a table for one-hot states
    )


class Network(eqx.Module):
    """Q(s, .) for discrete actions, otherwise Q(s, a); without actions V(s)."""

    torso: Encoder
    net: MLP
    actions: Actions | None = eqx.field(static=True)

    @classmethod
    def create(
        cls, key: Key[Array, ""], spec: Spec, config: Config, actions: Actions | None
    ) -> Network:
        """Create a network with random weights."""
        torso = Encoder.create(random_keys.fold(key, "torso"), spec)
        hidden = torso.hidden_sizes(config.width, config.depth)
        choices = actions is not None and actions.kind == "discrete"
        ins = 0 if actions is None or choices else actions.outputs
        outs = actions.outputs if actions is not None and choices else 1
        net = MLP.uniform(random_keys.fold(key, "net"), (torso.size + ins, *hidden, outs))
        return cls(torso, net, actions)

    def __call__(self, obs: Obs, action: Action) -> Float[Array, "row"]:
        """Return Q(s, a), in units of ``scale`` around ``middle``."""
        if self.actions is None or self.actions.kind == "discrete":
            q = self.choices(obs)
            if self.actions is None:
                return q[..., 0]
            return jnp.take_along_axis(q, action[..., None], -1)[..., 0]
        return self.net(self.inputs(obs, action))[..., 0]

    def inputs(self, obs: Obs, action: Action) -> Float[Array, "row input"]:
        """Return the first layer's input: the encoded observation and, unless every choice has its
        own output, the action."""
        if self.actions is None or self.actions.kind == "discrete":
            return self.torso(obs)
        flat = self.actions.flat(action)
        if self.actions.kind == "multi":
            hot = [jax.nn.one_hot(flat[..., i], n) for i, n in enumerate(self.actions.sizes)]
            flat = jnp.concatenate(hot, -1)
        return jnp.concatenate([self.torso(obs), flat], -1)

    def features(self, obs: Obs, action: Action) -> Float[Array, "row feature"]:
        """Return the last layer's input."""
        x, hidden = self.inputs(obs, action), self.net.layers[:-1]
        return MLP(hidden, self.net.activation, activate_last=True)(x) if hidden else x

    def choices(self, obs: Obs) -> Float[Array, "row output"]:
        """Return all outputs."""
        return self.net(self.torso(obs))


class State(eqx.Module):
    """All state that changes during learning, and the evaluated policy."""

    nets: Network  # leaves (member, ...)
    target: Network
    optimiser: optax.OptState
    updates: Float[Array, ""]
    seen: ObsNormaliser
    policy: Any
    config: Config


def init(key: Key[Array, ""], spec: Spec, config: Config, policy: Policy | None) -> State:
    """Create the state; observations are normalised by the moments in ``spec.log``."""
    actions = None if policy is None else Actions.from_space(spec.action)
    create = partial(Network.create, spec=spec, config=config, actions=actions)
    nets = Ensemble.create(key, config.members, create).nets
    seen = ObsNormaliser.of_log(spec, config.depth > 0)  # a table needs unnormalised states
    slow = jax.tree.map(jnp.copy, nets)
    return State(nets, slow, adam().init(nets), jnp.zeros(()), seen, policy, config)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Apply one update on transitions ``(batch, ...)``; ``extras["weight"]`` is ``(batch,
    member)``."""
    config = state.config
    y = td_target(
        batch.reward[None],
        config.gamma * batch.discount[None],
        values(state, batch.next_obs, key),
    )
    grads, metrics = jax.grad(loss, has_aux=True)(state.nets, state, batch, y)
    direction, optimiser = adam().update(grads, state.optimiser)
    rate = config.lr * jnp.maximum(1.0 - state.updates / config.updates, 0.0)
    nets = descend(state.nets, direction, rate)
    slow = polyak(state.target, nets, target_rate(config))
    updates = state.updates + 1.0
    made = State(nets, slow, optimiser, updates, state.seen, state.policy, config)
    return made, Signals(metrics)


def target_rate(config: Config) -> Float[Array, ""]:
    """Return tau; by default Q' forgets its start, gamma^(tau updates), within the planned
    updates."""
    whole = 5.0 / ((1.0 - config.gamma) * config.updates)
    return jnp.where(config.tau > 0.0, config.tau, jnp.minimum(whole, 0.1))


def loss(
    nets: Network, state: State, batch: Record, y: Float[Array, "member batch"]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return L of the module docstring, in units of ``scale``, and metrics."""
    config, obs = state.config, state.seen(batch.obs)
    q = Ensemble(nets)(obs, batch.action)
    error = q - jax.lax.stop_gradient((y - config.middle) / config.scale)
    weight = jnp.broadcast_to(batch.extras["weight"].T, error.shape)
    mask = jnp.broadcast_to(batch.mask[None], error.shape)
    total = 0.5 * masked_mean(weight * jnp.square(error), mask)
    return total * error.shape[0], {"loss/value": total}


def values(state: State, obs: Obs, key: Key[Array, ""]) -> Float[Array, "member row"]:
    """Return V'(s) of every member; without probabilities, from one sampled action per state."""
    config, policy, seen = state.config, state.policy, state.seen(obs)
    actions = state.target.actions
    if policy is not None and actions is not None:
        if actions.kind == "discrete" and policy.has_log_prob:
            chances = jnp.exp(action_log_probs(policy, obs, actions.outputs))
            every = eqx.filter_vmap(lambda net: net.choices(seen))(state.target)
            return scale_and_clip(jnp.sum(every * chances[None], -1), config)
        action = policy.sample(obs, key)
    else:
        action = None
    return scale_and_clip(Ensemble(state.target)(seen, action), config)


def action_values(state: State, obs: Obs, action: Action) -> Float[Array, "member row"]:
    """Return Q'(s, a) of every member."""
    return scale_and_clip(Ensemble(state.target)(state.seen(obs), action), state.config)


def scale_and_clip(x: Float[Array, "member row"], config: Config) -> Float[Array, "member row"]:
    """Convert network outputs to the reward's unit, and clip them to the possible values."""
    return jnp.clip(config.middle + config.scale * x, config.low, config.high)

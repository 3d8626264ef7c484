"""Fitted Q evaluation (Le 2019, arXiv:1903.08738): the value of a policy by regression on a log.

    target   y   = r + g V'(s'),    V'(s) = E_{a ~ pi(.|s)} Q'(s, a)
    loss     L   = 1/2 sum_m E[ c_m (Q_m(s, a) - y_m)^2 ]
    value    V   = mean over start states of E_{a ~ pi} Q'(s, a)

g is gamma times the world's discount: 0 at an end; a cut bootstraps, so the value is that of
going on without cuts. Q' follows Q by ``tau`` per update; of discrete actions V' is the exact sum
where the policy has probabilities, otherwise one sample per update. ``members`` networks learn
beside one another, each from its own resample of the episodes, c_m of them (Hao 2021,
arXiv:2102.03607): their spread is what data and initialisation leave open. With ``policy=None`` Q
does not see the action, and V is that of the policy that made the log (TD, on its own states).

Deviations: V' stays between what the log's smallest and largest reward would bring for ever (or 0,
where the world ends): regression on its own guesses about actions that nobody logged can run away
without bound, and true values cannot. Q' moves slowly instead of being the last regression's
result; Q is written as middle + scale x network, the mean and deviation of the returns that the
log shows, so that learning begins at the behaviour's value: too few updates err towards it. The
step size falls linearly to 0, and it is Q' that answers. Evidence:
benchmarks/results/offpolicy.md.
"""

from __future__ import annotations

import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import keys
from sterling.equations.average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.value import td_target
from sterling.field_types import Count, Depth, NotNegative, Share
from sterling.judging.policies import Policy, log_probs
from sterling.nets.encoder import Encoder
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Obs, Record, Signals, Spec, config


@config
class Config:
    """Sizes follow Fu 2021 (arXiv:2103.16596) but for the width, which suits several members."""

    lr: NotNegative = 3e-4  # Adam's step size at the start
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.0  # share of the way that Q' moves per update; 0: five horizons in all updates
    middle: float = 0.0  # what Q starts from: the log's mean return
    low: float = -math.inf  # what no value lies below; set from the log
    high: float = math.inf  # what no value lies above; set from the log
    scale: float = 1.0  # the unit that networks learn in: the deviation of the log's returns
    updates: int = 10_000  # planned
    batch: Count = 256  # transitions per update
    members: Count = 5  # networks
    width: Count = 128  # units per hidden layer
    depth: Depth = 2  # hidden layers, for vectors; 0: linear, which on one-hot states is a table


class Network(eqx.Module):
    """Q(s, .) of discrete actions, otherwise Q(s, a); without actions V(s)."""

    torso: Encoder
    net: MLP
    actions: Actions | None = eqx.field(static=True)

    @classmethod
    def create(
        cls, key: Key[Array, ""], spec: Spec, config: Config, actions: Actions | None
    ) -> Network:
        """A fresh one."""
        torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
        hidden = (config.width,) * (config.depth if torso.is_flat else 1)
        choices = actions is not None and actions.kind == "discrete"
        ins = 0 if actions is None or choices else actions.outputs
        outs = actions.outputs if actions is not None and choices else 1
        net = MLP.uniform(keys.fold(key, "net"), (torso.size + ins, *hidden, outs))
        return cls(torso, net, actions)

    def __call__(self, obs: Obs, action: Action) -> Float[Array, "row"]:
        """Q(s, a), in learning's unit."""
        if self.actions is None or self.actions.kind == "discrete":
            q = self.choices(obs)
            if self.actions is None:
                return q[..., 0]
            return jnp.take_along_axis(q, action[..., None], -1)[..., 0]
        return self.net(self.inputs(obs, action))[..., 0]

    def inputs(self, obs: Obs, action: Action) -> Float[Array, "row input"]:
        """What the layers read: the observation, and the action unless every choice has an output
        of its own."""
        if self.actions is None or self.actions.kind == "discrete":
            return self.torso(obs)
        flat = self.actions.flat(action)
        if self.actions.kind == "multi":
            hot = [jax.nn.one_hot(flat[..., i], n) for i, n in enumerate(self.actions.sizes)]
            flat = jnp.concatenate(hot, -1)
        return jnp.concatenate([self.torso(obs), flat], -1)

    def features(self, obs: Obs, action: Action) -> Float[Array, "row feature"]:
        """What the last layer reads."""
        x, hidden = self.inputs(obs, action), self.net.layers[:-1]
        return MLP(hidden, self.net.activation, activate_last=True)(x) if hidden else x

    def choices(self, obs: Obs) -> Float[Array, "row output"]:
        """Every output."""
        return self.net(self.torso(obs))


class State(eqx.Module):
    """Everything that changes, and the policy that is judged."""

    nets: Network  # leaves (member, ...)
    target: Network
    optimiser: optax.OptState
    updates: Float[Array, ""]
    seen: ObsNormaliser
    policy: Any
    config: Config


def init(key: Key[Array, ""], spec: Spec, config: Config, policy: Policy | None) -> State:
    """Fresh networks; observations are normalised by the moments in ``spec.log``."""
    actions = None if policy is None else Actions.of(spec.action)
    members = keys.deal(key, "member", config.members)
    nets = eqx.filter_vmap(lambda key: Network.create(key, spec, config, actions))(members)
    seen = ObsNormaliser.of_log(spec, config.depth > 0)  # a table needs its states as they are
    slow = jax.tree.map(jnp.copy, nets)
    return State(nets, slow, adam().init(nets), jnp.zeros(()), seen, policy, config)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update on transitions ``(batch, ...)``; ``extras["weight"]`` is ``(batch, member)``."""
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
    slow = polyak(state.target, nets, pace(config))
    updates = state.updates + 1.0
    made = State(nets, slow, optimiser, updates, state.seen, state.policy, config)
    return made, Signals(metrics)


def pace(config: Config) -> Float[Array, ""]:
    """tau. Q' comes to rest like gamma^(tau updates): what it began with must have gone by then."""
    whole = 5.0 / ((1.0 - config.gamma) * config.updates)
    return jnp.where(config.tau > 0.0, config.tau, jnp.minimum(whole, 0.1))


def loss(
    nets: Network, state: State, batch: Record, y: Float[Array, "member batch"]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """L of the module docstring, in units of ``scale``."""
    config, obs = state.config, state.seen(batch.obs)
    q = eqx.filter_vmap(lambda net: net(obs, batch.action))(nets)
    error = q - jax.lax.stop_gradient((y - config.middle) / config.scale)
    weight = jnp.broadcast_to(batch.extras["weight"].T, error.shape)
    mask = jnp.broadcast_to(batch.mask[None], error.shape)
    total = 0.5 * masked_mean(weight * jnp.square(error), mask)
    return total * error.shape[0], {"loss/value": total}


def values(state: State, obs: Obs, key: Key[Array, ""]) -> Float[Array, "member row"]:
    """V'(s) of every member; of actions without probabilities by one sample each."""
    config, policy, seen = state.config, state.policy, state.seen(obs)
    actions = state.target.actions
    if policy is not None and actions is not None:
        if actions.kind == "discrete" and policy.has_log_prob:
            chances = jnp.exp(log_probs(policy, obs, actions.outputs))
            every = eqx.filter_vmap(lambda net: net.choices(seen))(state.target)
            return bounded(jnp.sum(every * chances[None], -1), config)
        action = policy.sample(obs, key)
    else:
        action = None
    return bounded(eqx.filter_vmap(lambda net: net(seen, action))(state.target), config)


def action_values(state: State, obs: Obs, action: Action) -> Float[Array, "member row"]:
    """Q'(s, a) of every member."""
    seen = state.seen(obs)
    return bounded(eqx.filter_vmap(lambda net: net(seen, action))(state.target), state.config)


def bounded(x: Float[Array, "member row"], config: Config) -> Float[Array, "member row"]:
    """What networks say, in the reward's unit and within what values can be."""
    return jnp.clip(config.middle + config.scale * x, config.low, config.high)

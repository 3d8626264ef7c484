"""Maximum a posteriori policy optimisation (MPO; Abdolmaleki 2018, arXiv:1806.06920).

    value         V'(s)   = E_a[ Q'(s, a) ],                          a ~ pi'(.|s)
    target        y       = r + g V'(s')
    critic        L_Q     = 1/2 E[ w (Q(s, a) - y)^2 ]
    weights       q(a|s)  = pi'(a|s) e^(Q'(s, a) / eta) / E_a[ e^(Q'(s, a) / eta) ]      (E-step)
    temperature   L_eta   = eta (e_eta + E_s[ log E_a[ e^(Q'(s, a) / eta) ] ])
    policy        L_pi    = -E_s[ sum_a q(a|s) log pi(a|s) ]                             (M-step)
    limits        L_a     = sum_i E_s[ a_i (e_i - [KL_i]) + [a_i] KL_i ],   KL_i of (pi' || pi)

[x] is x as a constant; g is gamma times the environment's discount; w is 1, or prioritised replay's
importance weight. pi' and Q' become pi and Q every ``target_period`` updates; pi acts. Continuous
actions: E_a is a mean over ``samples`` actions, and policy and limits are decoupled (Abdolmaleki
2018b, arXiv:1812.02256, section 3.4): L_pi is the sum of two, of a normal with the mean of pi and
the deviation of pi', and the other way round, and so is L_a. Discrete actions: E_a and sum_a are
exact, and the KL has one limit.

Deviations from the papers: targets sum ``n_step`` rewards that are not corrected for the policy's
change, instead of Retrace; pi is SAC's normal squashed to (-1, 1), with a diagonal covariance (the
squashing changes neither q nor a KL); eta and a_i are softplus of real numbers, as in the authors'
library Acme; images are encoded by one torso, which only the critic's loss trains.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.on_policy.v_mpo import kl_limits
from sterling.algorithms.online import sac
from sterling.equations.limited_improvement import (
    improved_weights,
    limited_kl_losses,
    positive,
    raw_dual,
    temperature_loss,
)
from sterling.equations.masked_average import masked_mean
from sterling.equations.value_losses import q_of_action, td_target
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    NotNegative,
    Positive,
    Share,
    Sizes,
    Whole,
)
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.action_heads import SquashedPolicy as Policy
from sterling.nets.distributions import Normal
from sterling.nets.encoding.unseen_features import without_unseen_features
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

can_use_unseen = True  # by the critic


@config
class Config:
    """Defaults are Acme's (github.com/google-deepmind/acme, agents/jax/mpo); networks and step
    size are sac's."""

    lr: NotNegative = 3e-4  # Adam's step size, for critic and actor
    dual_lr: NotNegative = 1e-2  # Adam's step size, for eta and a_i
    gamma: Share = 0.99  # discount per step
    samples: Count = 20  # actions in the place of E_a, for continuous actions
    temperature: Positive = 1.0  # initial eta, in units of returns
    temperature_kl: NotNegative = 0.1  # e_eta: KL of q from pi', in nats
    multiplier: Positive = 10.0  # initial a_i
    choices_kl: NotNegative = 0.01  # e_i: mean KL of choices
    mean_kl: NotNegative = 0.0025  # e_i: mean KL by the means of continuous actions
    deviation_kl: NotNegative = 1e-5  # e_i: mean KL by their deviations
    target_period: Count = 100  # updates until pi' and Q' become pi and Q
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 10_000  # steps with random actions before the first update
    n_step: Count = 5  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critic's hidden layers


class Nets(eqx.Module):
    """Policy and critic."""

    actor: Policy
    critics: CriticEnsemble  # of one member


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    target: Nets
    duals: dict[str, Float[Array, ""]]  # real numbers that stand for eta and a_i
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # critic, actor, duals
    updates: Int[Array, ""]
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are neither a Box nor Discrete."""
    actions = supported_actions("mpo", spec.action, ("box", "discrete"), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    sizes, kind = (torso.size, *hidden), dict[str, Any](activation=config.activation)
    actor = Policy.create(random_keys.fold(key, "actor"), sizes, actions, **kind)
    actor = dataclasses.replace(actor, net=without_unseen_features(actor.net, torso, spec))
    kind |= {"layer_norm": config.layer_norm, "members": 1}
    critic_key = random_keys.fold(key, "critics")
    critics = CriticEnsemble.create(critic_key, torso, hidden, *actions.critic_sizes, **kind)
    nets = Nets(actor, critics)
    limited = ("mean", "deviation") if actions.kind == "box" else ("choices",)
    duals = {name: raw_dual(config.multiplier) for name in limited}
    duals |= {"temperature": raw_dual(config.temperature)}
    optimisers = adam().init(critics), adam().init(actor), adam().init(duals)
    updates = jnp.zeros((), jnp.int32)
    return State(nets, jax.tree.map(jnp.copy, nets), duals, optimisers, updates, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``; boxes in their own shape."""
    return sac.act(state.nets, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return sac.log_prob(state.nets, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the critic's value of the policy's mode (discrete: its mean value)."""
    actor, critics = state.nets.actor, state.nets.critics
    pi = policy(actor, critics.torso(obs), obs)
    if isinstance(pi, Normal):
        return critics.q_values(obs, jnp.tanh(pi.mean))[0]
    return jnp.sum(jax.nn.softmax(pi.logits) * critics.all_q_values(obs)[0], -1)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return Q(s, a)."""
    return q_value(state.nets.critics, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update critic, actor and dual variables once on transitions ``(batch, ...)``."""
    config, (critic_state, actor_state, dual_state) = state.config, state.optimisers
    next_key, key = random_keys.fold(key, "next"), random_keys.fold(key, "now")
    q, log_prior, _ = prior(state.target, batch.next_obs, next_key, config.samples)
    y = td_target(batch.reward, config.gamma * batch.discount, jnp.sum(jnp.exp(log_prior) * q, 0))
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(state.nets.critics, batch, y)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.nets.critics, direction, config.lr)
    improve, features = jax.grad(improvement_loss, has_aux=True), critics.torso(batch.obs)
    learned = state.nets.actor, state.duals
    (grads, dual_grads), policy_metrics = improve(learned, state, features, batch, key)
    direction, actor_state = adam().update(grads, actor_state)
    nets = Nets(descend(state.nets.actor, direction, config.lr), critics)
    direction, dual_state = adam().update(dual_grads, dual_state)
    duals, updates = descend(state.duals, direction, config.dual_lr), state.updates + 1
    due, optimisers = updates % config.target_period == 0, (critic_state, actor_state, dual_state)
    target = jax.tree.map(lambda new, old: jnp.where(due, new, old), nets, state.target)
    signals = Signals({**metrics, **policy_metrics}, {"td_error": error})
    return State(nets, target, duals, optimisers, updates, config), signals


def policy(actor: Policy, features: Float[Array, "... features"], obs: Obs) -> Any:
    """Return pi(.|s): a Categorical, or the Normal that is squashed."""
    pi = actor(obs, features)
    return pi.normal if actor.actions.kind == "box" else pi


def prior(
    nets: Nets, obs: Obs, key: Key[Array, ""], samples: int
) -> tuple[Float[Array, "action batch"], Float[Array, "action batch"], Any]:
    """Return Q of every action of E_a, the log-probability it has there, and of continuous actions
    what they are before squashing ``(action, batch, n)``."""
    features = nets.critics.torso(obs)
    pi = policy(nets.actor, features, obs)
    if not isinstance(pi, Normal):
        return nets.critics.all_q_values(obs)[0].T, jax.nn.log_softmax(pi.logits).T, None
    noise = jax.random.normal(key, (samples, *pi.mean.shape))
    raw = pi.mean[None] + jnp.exp(pi.log_std)[None] * noise
    wide = jnp.broadcast_to(features, (samples, *features.shape))
    q = nets.critics.q_from_features(wide, jnp.tanh(raw))[0]
    return q, jnp.full(q.shape, -math.log(samples)), raw


def q_value(critics: CriticEnsemble, obs: Obs, action: Action) -> Float[Array, "batch"]:
    """Return Q(s, a) of continuous or discrete actions."""
    if jnp.issubdtype(action.dtype, jnp.integer):
        return q_of_action(critics.all_q_values(obs)[0], action)
    return critics.q_values(obs, action.reshape(len(action), -1))[0]


def critic_loss(
    critics: CriticEnsemble, batch: Record, y: Float[Array, "batch"]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Q of the module docstring, metrics, and |TD error| per row."""
    q = q_value(critics, batch.obs, batch.action)
    weight = batch.extras.get("weight", jnp.ones_like(y))
    loss = masked_mean(weight * 0.5 * jnp.square(q - y), batch.mask)
    metrics = {"loss/value": loss, "value/q": masked_mean(q, batch.mask)}
    return loss, (metrics, jnp.abs(q - y))


def improvement_loss(
    learned: tuple[Policy, dict[str, Array]],
    state: State,
    features: Float[Array, "batch features"],
    batch: Record,
    key: Key[Array, ""],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return L_pi + L_eta + L_a of the module docstring for a policy and raw dual variables, and
    metrics. ``features`` are those of the updated torso."""
    config, mask, target = state.config, batch.mask, state.target
    duals = {name: positive(raw) for name, raw in learned[1].items()}
    q, log_prior, action = prior(target, batch.obs, key, config.samples)
    weight, log_mean = improved_weights(q, log_prior, duals["temperature"])
    old = policy(target.actor, target.critics.torso(batch.obs), batch.obs)
    pi = policy(learned[0], features, batch.obs)
    loss = -masked_mean(jnp.sum(weight * log_probs(pi, old, action), 0), mask)
    temperature = temperature_loss(duals["temperature"], log_mean, config.temperature_kl)
    limited, metrics = limited_kl_losses(old.kl_parts(pi), duals, kl_limits(config), mask)
    metrics |= {"loss/policy": loss, "policy/entropy": masked_mean(pi.entropy(), mask)}
    metrics |= {"policy/temperature": duals["temperature"]}
    return loss + masked_mean(temperature, mask) + limited, metrics


def log_probs(pi: Any, old: Any, action: Any) -> Float[Array, "action batch"]:
    """Return log pi(a|s) of every action of E_a; of continuous ones the sum of both halves."""
    if action is None:
        return jax.nn.log_softmax(pi.logits).T
    only_mean, only_deviation = Normal(pi.mean, old.log_std), Normal(old.mean, pi.log_std)
    return jax.vmap(lambda each: only_mean.log_prob(each) + only_deviation.log_prob(each))(action)

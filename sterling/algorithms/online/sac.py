"""Soft actor-critic (Haarnoja 2018b, arXiv:1812.05905), for continuous and discrete actions.

    value        V(s)  = E_a[ min_i Q_i(s, a) - alpha log pi(a|s) ],     a ~ pi(.|s)
    target       y     = r + g V'(s')
    critics      L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ]
    actor        L_pi  = -E[ V(s) ]
    temperature  L_a   = E[ alpha (H(pi(.|s)) - H_target) ]

g is gamma times the environment's discount; V' uses target critics that follow at rate ``tau`` per
update; w is 1, or prioritised replay's importance weight. Continuous actions: pi is a normal
squashed to (-1, 1), E_a one reparameterised sample, H_target = -dim(A). Discrete actions
(Christodoulou 2019, arXiv:1910.07207): pi is categorical, E_a and H are exact sums, H_target = 0.98
log |A|, over the actions allowed in s. Actions of several choices: pi is a product of categorical
distributions, and Q(s, a) = mean_j Q_j(s, a_j) (Seyde 2023, arXiv:2210.12566, eq. 3).

Deviations from the papers: the updates use each other's results in the order critics, actor,
temperature; images are encoded by one torso, which the policy uses but only the critics' loss
trains (Yarats 2021). No reward scale: alpha is tuned instead. A sum of ``n_step`` rewards is not
corrected for the policy's change, and does not include entropy. ``correction`` is constant, as in
Dopamine's Rainbow (Schaul 2016, arXiv:1511.05952, anneals it to 1).
Evidence: benchmarks/scores/, docs/scores.md.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.equations import soft_values
from sterling.equations.factored_values import mean_over_choices, q_of_choices, split_choices
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.value_losses import td_target
from sterling.field_types import Activation, Count, Depth, Finite, NotNegative, Share, Sizes, Whole
from sterling.nets.action_heads import ONLINE, Actions, supported_actions
from sterling.nets.action_heads import SquashedPolicy as Policy
from sterling.nets.distributions import Categorical, MultiCategorical, TanhNormal
from sterling.nets.encoding.unseen_features import without_unseen_features
from sterling.nets.obs_encoder import Encoder, action_mask
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import TwinCritics
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

can_use_unseen = True  # by the critics


@config
class Config:
    """Defaults are those published for MuJoCo (Haarnoja 2018b, table 1 and the authors' code)."""

    lr: NotNegative = 3e-4  # Adam's step size, for critics, actor and temperature
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which target critics follow, per update
    alpha: NotNegative = 1.0  # initial temperature; constant without tune_alpha
    tune_alpha: bool = True  # tune alpha so that the policy's entropy stays at target_entropy
    target_entropy: Finite | None = None  # nats; None: -dim(A), or 0.98 of the maximum (discrete)
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 10_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critics' hidden layers


class State(eqx.Module):
    """Everything that changes during training."""

    actor: Policy
    critics: TwinCritics
    target: TwinCritics
    log_alpha: Float[Array, ""]
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # critics, actor, alpha
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that join choices and numbers."""
    actions = supported_actions("sac", spec.action, ("box", "discrete", "multi"), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    hidden = torso.hidden_sizes(config.width, config.depth)
    actor_key, critic_key = (random_keys.fold(key, name) for name in ("actor", "critics"))
    kind: Any = {"activation": config.activation}
    actor = Policy.create(actor_key, (torso.size, *hidden), actions, **kind)
    actor = dataclasses.replace(actor, net=without_unseen_features(actor.net, torso, spec))
    kind |= {"layer_norm": config.layer_norm, "choices": actions.choices}
    critics = TwinCritics.create(critic_key, torso, hidden, *actions.critic_sizes, **kind)
    log_alpha = jnp.log(soft_values.initial_alpha(config.alpha, config.tune_alpha))
    optimisers = adam().init(critics), adam().init(actor), adam().init(log_alpha)
    return State(actor, critics, jax.tree.map(jnp.copy, critics), log_alpha, optimisers, config)


def act(
    state: Any, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``; boxes in their own shape.
    Here and in ``log_prob`` ``state`` may be any object with ``actor`` and ``critics``."""
    pi = state.actor(obs, state.critics.torso(obs))
    if not isinstance(pi, TanhNormal):
        return (pi.sample(key) if explore else pi.mode()), {}
    action = pi.sample_and_log_prob(key)[0] if explore else pi.mode()
    return state.actor.actions.shaped(action), {}


def log_prob(state: Any, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return state.actor(obs, state.critics.torso(obs)).log_prob(state.actor.actions.flat(action))


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the smaller critic's value of the policy's mode (discrete: its mean value)."""
    pi = state.actor(obs, state.critics.torso(obs))
    if not isinstance(pi, TanhNormal):
        q = jnp.minimum(*state.critics.all_q_values(obs))
        chances = jnp.concatenate([jax.nn.softmax(part.logits) for part in pi.parts], -1)
        return mean_over_choices(chances * q, state.critics.choices, lambda x: jnp.sum(x, -1))
    return jnp.minimum(*state.critics.q_values(obs, pi.mode()))


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a)."""
    return jnp.minimum(*q_values(state.critics, obs, action))


def learn(state: Any, batch: Record, key: Key[Array, ""], alter: Any = None) -> tuple[Any, Signals]:
    """Update critics, actor and temperature once on transitions ``(batch, ...)``. The actor follows
    the critics, or ``alter(critics)`` if given. Other fields of ``state`` stay unchanged."""
    config, (critic_state, actor_state, alpha_state) = state.config, state.optimisers
    next_key, key = random_keys.fold(key, "next"), random_keys.fold(key, "now")
    y = target(state, batch, next_key)
    grads, (metrics, error) = jax.grad(critic_loss, has_aux=True)(state.critics, batch, y)
    direction, critic_state = adam().update(grads, critic_state)
    critics = descend(state.critics, direction, config.lr)
    alpha, actor_critics = jnp.exp(state.log_alpha), alter(critics) if alter else critics
    actor_grad = jax.grad(actor_loss, has_aux=True)
    grads, (policy_metrics, entropy) = actor_grad(state.actor, actor_critics, batch, alpha, key)
    direction, actor_state = adam().update(grads, actor_state)
    actor, log_alpha = descend(state.actor, direction, config.lr), state.log_alpha
    if config.tune_alpha:
        goal = target_entropy(actor.actions, config.target_entropy, batch.obs, share=0.98)
        grads = jax.grad(alpha_loss)(log_alpha, entropy, goal, batch)
        direction, alpha_state = adam().update(grads, alpha_state)
        log_alpha = descend(log_alpha, direction, config.lr)

    optimisers = (critic_state, actor_state, alpha_state)
    fresh = {"actor": actor, "critics": critics, "log_alpha": log_alpha, "optimisers": optimisers}
    learned = dataclasses.replace(state, target=polyak(state.target, critics, config.tau), **fresh)
    metrics = {**metrics, **policy_metrics, "policy/alpha": alpha}
    return learned, Signals(metrics, {"td_error": error})


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """Return the targets y of the module docstring."""
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    next_value, _ = policy_value(pi, state.target, batch.next_obs, jnp.exp(state.log_alpha), key)
    return td_target(batch.reward, state.config.gamma * batch.discount, next_value)


def q_values(
    critics: TwinCritics, obs: Obs, action: Action
) -> tuple[Float[Array, "batch"], Float[Array, "batch"]]:
    """Return Q_1(s, a) and Q_2(s, a) of continuous or discrete actions."""
    if jnp.issubdtype(action.dtype, jnp.integer):
        first, second = critics.all_q_values(obs)
        sizes = critics.choices
        return q_of_choices(first, action, sizes), q_of_choices(second, action, sizes)
    return critics.q_values(obs, action.reshape(len(action), -1))


def critic_loss(
    critics: TwinCritics, batch: Record, y: Float[Array, "batch"]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_Q of the module docstring, metrics, and |TD error| per row (mean over critics)."""
    values = q_values(critics, batch.obs, batch.action)
    weight = batch.extras.get("weight", jnp.ones_like(y))
    errors = jnp.stack([q - y for q in values])
    loss = masked_mean(weight * 0.5 * jnp.sum(jnp.square(errors), 0), batch.mask)
    metrics = {"loss/value": loss, "value/q": masked_mean(values[0], batch.mask)}
    return loss, (metrics, jnp.mean(jnp.abs(errors), 0))


def actor_loss(
    actor: Policy, critics: TwinCritics, batch: Record, alpha: Float[Array, ""], key: Key[Array, ""]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_pi of the module docstring, metrics, and each row's entropy."""
    pi = actor(batch.obs, critics.torso(batch.obs))
    values, entropy = policy_value(pi, critics, batch.obs, alpha, key)
    loss = -masked_mean(values, batch.mask)
    metrics = {"loss/policy": loss, "policy/entropy": masked_mean(entropy, batch.mask)}
    return loss, (metrics, entropy)


def alpha_loss(
    log_alpha: Float[Array, ""], entropy: Float[Array, "batch"], goal: Array, batch: Record
) -> Float[Array, ""]:
    """Return L_a of the module docstring, with ``goal`` as H_target."""
    return masked_mean(soft_values.temperature_loss(log_alpha, entropy, goal), batch.mask)


def policy_value(
    pi: TanhNormal | Categorical | MultiCategorical,
    critics: TwinCritics,
    obs: Obs,
    alpha: Array,
    key: Key[Array, ""],
) -> tuple[Float[Array, "batch"], Float[Array, "batch"]]:
    """Return V(s) of the module docstring and the entropy (continuous: its one-sample estimate)."""
    if not isinstance(pi, TanhNormal):
        log_probs = [jax.nn.log_softmax(part.logits) for part in pi.parts]
        q = split_choices(jnp.minimum(*critics.all_q_values(obs)), critics.choices)
        return soft_values.soft_value_choices(q, log_probs, alpha), pi.entropy()
    action, log_prob = pi.sample_and_log_prob(key)
    return soft_values.soft_value(
        jnp.minimum(*critics.q_values(obs, action)), log_prob, alpha
    ), -log_prob


def target_entropy(
    actions: Actions, given: float | None, obs: Obs, share: float
) -> Float[Array, "..."]:
    """Return H_target: ``given``, or -dim(A) for a Box, or for choices a ``share`` of the maximum,
    per row if observations have an action mask."""
    if given is not None or actions.kind == "box":
        return jnp.asarray(-float(actions.outputs) if given is None else given)
    mask = action_mask(obs, actions.sizes)
    if mask is None:
        return jnp.asarray(share * sum(math.log(size) for size in actions.sizes))
    allowed = [jnp.sum(part, -1) for part in split_choices(mask.astype(jnp.float32), actions.sizes)]
    return share * sum((jnp.log(jnp.maximum(n, 1.0)) for n in allowed), jnp.zeros(()))

"""SimBa: SAC with networks biased to simple functions (Lee 2025, arXiv:2410.09754).

    networks     s is divided by its running deviation, less its mean; residual blocks of two linear
                 layers behind a layer norm, and a norm before the outputs (residual_mlp.py)
    target       y     = r + g (min_i Q'_i(s', a') - alpha log pi(a'|s')),     a' ~ pi(.|s')
    critics      L_Q   = 1/2 sum_i E[ w (Q_i(s, a) - y)^2 ]
    actor        L_pi  = E[ alpha log pi(a|s) - min_i Q_i(s, a) ],             a ~ pi(.|s)
    temperature  L_a   = E[ alpha (H(pi(.|s)) + dim(A) / 2) ]
    steps        theta <- theta - lr (Adam's direction + ``weight_decay`` theta), but alpha's

g is gamma times the environment's discount; Q'_i follow at rate ``tau`` per update; w is 1, or
prioritised replay's importance weight. pi is SAC's.

Deviations from the paper: the running mean and deviation are those of replayed observations, each
update counting its batch, where the paper counts each collected one; the critics are updated first
and their loss is halved, which Adam does not see; log deviations are clipped to (-10, 2), where its
code squashes them into it; ``gamma`` is constant, where its code computes it from the length of
episodes (0.95 to 0.995). ``members=1`` is the paper's single critic for tasks that never terminate.
Images are encoded by one torso, which only the critics' loss trains. Entries that only critics may
see are not supported.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.continuous import redq
from sterling.algorithms.offline import edac
from sterling.algorithms.online import sac
from sterling.equations import soft_values
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.value_losses import td_target
from sterling.field_types import Activation, Count, Finite, NotNegative, Share, Whole
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.action_heads import SquashedPolicy as Policy
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, adamw_step, descend
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.nets.running_statistics import ObsNormaliser
from sterling.nets.special_layers.residual_mlp import ResidualMLP
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

LEAST = -10.0  # bound of the policy's log deviation


@config
class Config:
    """Defaults are those of the paper (appendix) and its code."""

    lr: NotNegative = 1e-4  # AdamW's step size, for critics, actor and temperature
    weight_decay: NotNegative = 1e-2  # AdamW's weight decay, for critics and actor
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which target critics follow, per update
    members: Count = 2  # critics
    alpha: NotNegative = 0.01  # initial temperature; constant without tune_alpha
    tune_alpha: bool = True  # tune alpha so that the policy's entropy stays at target_entropy
    target_entropy: Finite | None = None  # nats; None: -dim(A) / 2
    normalise_obs: bool = True  # normalise observations by their running mean and deviation
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 2  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 5_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Count = 128  # units between the actor's blocks; four times as many inside
    blocks: Whole = 1  # residual blocks of the actor
    critic_width: Count = 512  # units between the critics' blocks; four times as many inside
    critic_blocks: Whole = 2  # residual blocks of each critic
    activation: Activation = "relu"  # inside blocks: tanh, relu, silu, elu or gelu


class State(eqx.Module):
    """Everything that changes during training."""

    actor: Policy  # its net is a ResidualMLP
    critics: CriticEnsemble  # as are these, with a leading axis of members
    target: CriticEnsemble
    log_alpha: Float[Array, ""]
    normaliser: ObsNormaliser
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # critics, actor, alpha
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are no Box."""
    actions = supported_actions("simba", spec.action, ("box",), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    sizes = torso.size, config.width, 2 * actions.outputs
    actor_key, critic_key = (random_keys.fold(key, part) for part in ("actor", "critics"))
    net = ResidualMLP.create(actor_key, sizes, config.blocks, config.activation)
    sizes, blocks = (torso.size + actions.outputs, config.critic_width, 1), config.critic_blocks
    make = jax.vmap(lambda key: ResidualMLP.create(key, sizes, blocks, config.activation))
    critics = CriticEnsemble(torso, make(random_keys.split(critic_key, "member", config.members)))
    actor, copy = Policy(net, actions, LEAST), jax.tree.map(jnp.copy, critics)
    log_alpha = jnp.log(soft_values.initial_alpha(config.alpha, config.tune_alpha))
    normaliser = ObsNormaliser.create(spec.obs, config.normalise_obs, jnp.inf)
    optimisers = adam().init(critics), adam().init(actor), adam().init(log_alpha)
    return State(actor, critics, copy, log_alpha, normaliser, optimisers, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``, in the space's shape."""
    return edac.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return edac.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the smallest critic's value of the policy's mode."""
    pi = edac.policy_distribution(state, obs)
    return state.critics.q_values(state.normaliser(obs), pi.mode()).min(0)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a)."""
    flat = state.actor.actions.flat(action)
    return state.critics.q_values(state.normaliser(obs), flat).min(0)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Count the observations of transitions ``(batch, ...)`` into the running statistics, then
    update critics, actor and temperature once."""
    config, (critic_state, actor_state, _) = state.config, state.optimisers
    normaliser = state.normaliser.update(batch.obs, batch.mask)
    batch = normaliser.batch(batch)
    y = target(state, batch, random_keys.fold(key, "next"))
    grads, (metrics, error) = jax.grad(redq.critic_loss, has_aux=True)(state.critics, batch, y)
    critics, critic_state = decayed_step(state.critics, grads, critic_state, config)
    actor_grad, now = jax.grad(actor_loss, has_aux=True), random_keys.fold(key, "now")
    alpha = jnp.exp(state.log_alpha)
    grads, (policy_metrics, entropy) = actor_grad(state.actor, critics, batch, alpha, now)
    actor, actor_state = decayed_step(state.actor, grads, actor_state, config)
    log_alpha, alpha_state = temperature_step(state, batch, entropy, config.lr)
    learned = dataclasses.replace(
        state,
        actor=actor,
        critics=critics,
        target=polyak(state.target, critics, config.tau),
        log_alpha=log_alpha,
        normaliser=normaliser,
        optimisers=(critic_state, actor_state, alpha_state),
    )
    metrics = {**metrics, **policy_metrics, "policy/alpha": alpha}
    return learned, Signals(metrics, {"td_error": error})


def temperature_step(
    state: Any, batch: Record, entropy: Float[Array, "batch"], rate: Float[Array, ""] | float
) -> tuple[Float[Array, ""], optax.OptState]:
    """Return log alpha and its optimiser after a step of Adam on L_a of the module docstring. The
    ``state`` may be any with the fields ``actor``, ``log_alpha``, ``optimisers`` and ``config``."""
    config, log_alpha, optimiser = state.config, state.log_alpha, state.optimisers[2]
    if not config.tune_alpha:
        return log_alpha, optimiser
    half = -0.5 * float(state.actor.actions.outputs)
    goal = jnp.asarray(half if config.target_entropy is None else config.target_entropy)
    grads = jax.grad(sac.alpha_loss)(log_alpha, entropy, goal, batch)
    direction, optimiser = adam().update(grads, optimiser)
    return descend(log_alpha, direction, rate), optimiser


def decayed_step(parameters: Any, grads: Any, optimiser: Any, config: Any) -> tuple[Any, Any]:
    """Return parameters and optimiser after a step of AdamW (Loshchilov 2019), for any Config with
    ``lr`` and ``weight_decay``."""
    return adamw_step(parameters, grads, optimiser, config.lr, config.weight_decay)


def target(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch"]:
    """Return the targets y of the module docstring, of normalised observations."""
    pi = state.actor(batch.next_obs, state.critics.torso(batch.next_obs))
    action, log_p = pi.sample_and_log_prob(key)
    q = state.target.q_values(batch.next_obs, action).min(0)
    soft = soft_values.soft_value(q, log_p, jnp.exp(state.log_alpha))
    return td_target(batch.reward, state.config.gamma * batch.discount, soft)


def actor_loss(
    actor: Policy, critics: CriticEnsemble, batch: Record, alpha: Array, key: Key[Array, ""]
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, "batch"]]]:
    """Return L_pi of the module docstring, metrics, and each row's estimate of the entropy."""
    action, log_p = actor(batch.obs, critics.torso(batch.obs)).sample_and_log_prob(key)
    q = critics.q_values(batch.obs, action).min(0)
    loss = -masked_mean(soft_values.soft_value(q, log_p, alpha), batch.mask)
    metrics = {"loss/policy": loss, "policy/entropy": masked_mean(-log_p, batch.mask)}
    return loss, (metrics, -log_p)

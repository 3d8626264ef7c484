"""BRO: SAC made bigger, regularized and optimistic (Nauman 2024, arXiv:2405.16158).

    networks     residual blocks with a layer norm behind every linear layer (residual_mlp.py)
    values       Z_im(s, a): m = 1 ... M quantiles of i = 1 ... N critics;    Z_m = mean_i Z_im;
                 D_m = mean_i |Z_im - Z_m|, which is half the difference of two critics
    targets      y_m   = r + g (Z'_m - alpha log pi(a'|s')),                   a' ~ pi(.|s')
    critics      L_Z   = sum_i E[ w mean_{m,k} rho_m(y_k - Z_im(s, a)) ]
    actor        L_pi  = E[ alpha log pi(a|s) - mean_m Z_m ],                  a ~ pi(.|s)
    explorer     pi is a normal (mu, sigma), squashed; pi_e one with (mu + f(s, mu), c sigma)
                 K     = sum_j f_j^2 / (2 sigma_j^2) / dim(A): KL(pi_e || pi), were c 1
                 L_e   = E[ kappa dim(A) K - mean_m (Z_m + beta D_m) ],        a ~ pi_e(.|s)
    temperature  L_a   = E[ alpha (H(pi(.|s)) + dim(A) / 2) ]
    optimism     L_b   = beta E[ K - ``kl_target`` ]
    KL weight    L_k   = -kappa E[ K - ``kl_target`` ]
    steps        AdamW's (simba.py) of networks; Adam's of alpha, beta, kappa, with beta_1 = 0.5

pi_e explores, pi's mode is evaluated. rho_m is the quantile Huber loss at (2 m - 1) / (2 M) with
threshold 1; g is gamma times the environment's discount; Z' follow at rate ``tau`` per update; c is
``std_multiplier``; w is 1, or prioritised replay's importance weight. The logarithms of beta and
kappa are squashed into (-10, 7.5), pi's log deviations into (-10, 2). No minimum of critics is
taken, so nothing corrects overestimation.

A reset gives everything but the replay buffer its values of the run's beginning, as in the authors'
code: the same weights, temperature, optimism and KL weight, and new optimisers. It comes before the
first update after each number of steps in ``resets``; steps are counted by updates. BRO (Fast) is
``learn=2`` with ``resets=15001``.

Deviations from the code: the critics' loss is the mean over pairs of quantiles (theirs: a sum over
one of them), which Adam does not see; images are encoded by one torso, which only the critics' loss
trains. Entries that only critics may see are not supported.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.algorithms.continuous import simba, tqc
from sterling.algorithms.online import sac
from sterling.equations import soft_values
from sterling.equations.bounded_coefficients import coefficient, raw_coefficient
from sterling.equations.masked_average import masked_mean
from sterling.equations.polyak import polyak
from sterling.equations.updates_of_steps import updates_before
from sterling.equations.value_losses import td_target
from sterling.field_types import (
    Activation,
    Count,
    Finite,
    NotNegative,
    Positive,
    Share,
    Steps,
    Whole,
)
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import CriticEnsemble
from sterling.nets.special_layers.optimistic_networks import OptimisticNetworks as Networks
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config

RESETS = 15_001, 50_001, 250_001, 500_001, 750_001, 1_000_001, 1_500_001, 2_000_001


@config
class Config:
    """Defaults are those of the paper and its code."""

    lr: NotNegative = 3e-4  # step size, for networks and temperature
    dual_lr: NotNegative = 3e-5  # step size, for optimism and KL weight
    weight_decay: NotNegative = 1e-4  # AdamW's weight decay, for networks
    gamma: Share = 0.99  # discount per step
    tau: Share = 0.005  # rate at which target critics follow, per update
    members: Count = 2  # critics
    quantiles: Count = 100  # of each critic
    optimism: Positive = 1.0  # initial weight of the critics' disagreement for the explorer
    kl_weight: Positive = 0.25  # initial weight of the explorer's KL
    kl_target: NotNegative = 0.05  # KL that the explorer is kept at, in nats per action number
    std_multiplier: Positive = 0.75  # explorer's deviations over the actor's
    alpha: NotNegative = 1.0  # initial temperature; constant without tune_alpha
    tune_alpha: bool = True  # tune alpha so that the policy's entropy stays at target_entropy
    target_entropy: Finite | None = None  # nats; None: -dim(A) / 2
    resets: Steps = RESETS  # steps after which all but the replay buffer begins anew; 0: never
    batch: Count = 128  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 10  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 2_500  # steps with random actions before the first update
    n_step: Count = 1  # rewards summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Count = 256  # units per layer of actor and explorer
    blocks: Whole = 1  # residual blocks of actor and explorer
    critic_width: Count = 512  # units per layer of the critics
    critic_blocks: Whole = 2  # residual blocks of each critic
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Networks
    target: CriticEnsemble
    log_alpha: Float[Array, ""]
    raw_optimism: Float[Array, ""]  # of which bounded_coefficients.py makes beta
    raw_kl_weight: Float[Array, ""]  # and kappa
    optimisers: tuple[optax.OptState, ...]  # critics; actor; explorer; alpha, beta and kappa
    updates: Int[Array, ""]
    initial: Networks  # which resets return to
    due: tuple[int, ...] = eqx.field(static=True)  # numbers of updates before which they come
    config: Config


def needs(config: Config) -> Transitions:
    """Ask for transitions from a uniform or prioritised replay buffer."""
    return Transitions.of_config(config)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are no Box."""
    actions = supported_actions("bro", spec.action, ("box",), ONLINE)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    steps = config.resets if isinstance(config.resets, tuple) else (config.resets,)
    due = {updates_before(step, needs(config), spec.envs) for step in steps} - {0}
    return beginning(Networks.create(key, torso, actions, config), tuple(sorted(due)), config)


def beginning(initial: Networks, due: tuple[int, ...], config: Config) -> State:
    """Return the state before the first update."""
    nets, target = (jax.tree.map(jnp.copy, each) for each in (initial, initial.critics))
    log_alpha = jnp.log(soft_values.initial_alpha(config.alpha, config.tune_alpha))
    numbers = log_alpha, raw_coefficient(config.optimism), raw_coefficient(config.kl_weight)
    optimisers = tuple(adam().init(x) for x in (nets.critics, nets.actor, nets.explorer, numbers))
    return State(nets, target, *numbers, optimisers, jnp.zeros((), jnp.int32), initial, due, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of pi_e, or pi's mode without ``explore``, in the space's shape."""
    if not explore:
        return sac.act(state.nets, obs, key, explore)
    pi, _ = state.nets.exploring_policy(obs, state.config.std_multiplier)
    return state.nets.actor.actions.shaped(pi.sample_and_log_prob(key)[0]), {}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return sac.log_prob(state.nets, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the mean quantile of all critics at the policy's mode."""
    return tqc.value(state.nets, obs)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return the mean quantile of all critics."""
    return tqc.action_value(state.nets, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update everything once on transitions ``(batch, ...)``, after a reset if one is due."""
    state, config = after_reset(state), state.config
    nets, (critic_state, actor_state, explorer_state, _) = state.nets, state.optimisers
    next_key, now, explore = (random_keys.fold(key, name) for name in ("next", "now", "explore"))
    y, alpha = targets(state, batch, next_key), jnp.exp(state.log_alpha)
    critics, critic_state, (metrics, error) = descended(
        tqc.critic_loss, nets.critics, critic_state, config, batch, y
    )
    actor, actor_state, (policy_metrics, entropy) = descended(
        tqc.actor_loss, nets.actor, actor_state, config, critics, batch, alpha, now
    )
    nets = dataclasses.replace(nets, actor=actor, critics=critics)
    explorer, explorer_state, (explorer_metrics, excess) = descended(
        explorer_loss, nets.explorer, explorer_state, config, nets, state, batch, explore
    )
    numbers, number_state = updated_numbers(state, batch, entropy, excess)
    learned = dataclasses.replace(
        state,
        nets=dataclasses.replace(nets, explorer=explorer),
        target=polyak(state.target, critics, config.tau),
        **numbers,
        optimisers=(critic_state, actor_state, explorer_state, number_state),
        updates=state.updates + 1,
    )
    metrics |= policy_metrics | {"policy/alpha": alpha} | explorer_metrics
    return learned, Signals(metrics, {"td_error": error})


def after_reset(state: State) -> State:
    """Return the state that an update begins with: that of the run's beginning if it is due."""
    if not state.due:
        return state
    is_due = jnp.any(state.updates == jnp.asarray(state.due, jnp.int32))
    parts = state.initial, state.due, state.config
    again = lambda: dataclasses.replace(beginning(*parts), updates=state.updates)  # noqa: E731
    return jax.lax.cond(is_due, again, lambda: state)


def descended(loss: Any, part: Any, optimiser: Any, config: Config, *args: Any) -> Any:
    """Return ``part`` and its optimiser after a step down ``loss(part, *args)``, and its rest."""
    grads, rest = jax.grad(loss, has_aux=True)(part, *args)
    return *simba.decayed_step(part, grads, optimiser, config), rest


def targets(state: State, batch: Record, key: Key[Array, ""]) -> Float[Array, "batch quantile"]:
    """Return the targets y_m of the module docstring."""
    obs = batch.next_obs
    action, log_p = state.nets.actor(obs, state.nets.critics.torso(obs)).sample_and_log_prob(key)
    z = state.target.outputs(obs, action).mean(0)
    soft = soft_values.soft_value(z, log_p[:, None], jnp.exp(state.log_alpha))
    return td_target(batch.reward[:, None], state.config.gamma * batch.discount[:, None], soft)


def explorer_loss(
    explorer: Any, nets: Networks, state: State, batch: Record, key: Array
) -> tuple[Float[Array, ""], tuple[dict[str, Array], Float[Array, ""]]]:
    """Return L_e of the module docstring, metrics, and E[K - ``kl_target``]."""
    moved, config = dataclasses.replace(nets, explorer=explorer), state.config
    pi, distance = moved.exploring_policy(batch.obs, config.std_multiplier)
    optimism, kl_weight = coefficient(state.raw_optimism), coefficient(state.raw_kl_weight)
    z = nets.critics.outputs(batch.obs, pi.sample_and_log_prob(key)[0])
    disagreement = jnp.abs(z - z.mean(0, keepdims=True)).mean((0, -1))
    q = z.mean((0, -1)) + optimism * disagreement
    loss = masked_mean(kl_weight * distance - q, batch.mask)
    each = distance / float(nets.actor.actions.outputs)
    metrics = {"loss/explorer": loss, "explorer/kl": masked_mean(each, batch.mask)}
    metrics |= {"explorer/disagreement": masked_mean(disagreement, batch.mask)}
    metrics |= {"explorer/optimism": optimism, "explorer/kl_weight": kl_weight}
    return loss, (metrics, masked_mean(each - config.kl_target, batch.mask))


def updated_numbers(
    state: State, batch: Record, entropy: Float[Array, "batch"], excess: Float[Array, ""]
) -> tuple[dict[str, Any], optax.OptState]:
    """Return log alpha and the raw beta and kappa after a step down L_a, L_b and L_k, with
    ``excess`` as E[K - ``kl_target``], and their optimiser."""
    config, half = state.config, -0.5 * float(state.nets.actor.actions.outputs)
    goal = jnp.asarray(half if config.target_entropy is None else config.target_entropy)

    def loss(log_alpha: Array, raw_optimism: Array, raw_kl_weight: Array) -> Float[Array, ""]:
        weight = coefficient(raw_optimism) - coefficient(raw_kl_weight)
        return sac.alpha_loss(log_alpha, entropy, goal, batch) + weight * excess

    numbers = state.log_alpha, state.raw_optimism, state.raw_kl_weight
    grads = jax.grad(loss, (0, 1, 2))(*numbers)
    direction, optimiser = adam(beta1=0.5).update(grads, state.optimisers[3])
    rates = config.lr if config.tune_alpha else 0.0, config.dual_lr, config.dual_lr
    names = "log_alpha", "raw_optimism", "raw_kl_weight"
    return dict(zip(names, map(descend, numbers, direction, rates), strict=True)), optimiser

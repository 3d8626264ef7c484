"""On-policy maximum a posteriori policy optimisation (V-MPO; Song 2019, arXiv:1909.12238).

    advantage     A_t   = sum_k (gamma lambda)^k delta_{t+k}
    upper half    D     = the half of a minibatch's rows with the larger A
    weights       psi   = e^(A / eta) / sum_D e^(A / eta)                                  (eq. 4)
    policy        L_pi  = -sum_D psi log pi(a|s)                                           (eq. 3)
    temperature   L_eta = eta (e_eta + log( 1/|D| sum_D e^(A / eta) ))                     (eq. 5)
    limits        L_a   = sum_i E[ a_i (e_i - [KL_i]) + [a_i] KL_i ],   KL_i of (pi_old || pi)
    value         L_V   = 1/2 E[ (V(s) - (A + V_old(s)))^2 ]
    total         L     = L_pi + L_eta + L_a + L_V

[x] is x as a constant. The KL of normals has two parts with limits of their own: that of the mean
and that of the deviation (Abdolmaleki 2018b, arXiv:1812.02256); choices have one. pi_old acts, here
and in evaluations, and becomes pi every ``target_period`` iterations. One Adam learns everything.

Deviations from the paper: advantages by GAE (``gae_lambda`` = 1 is its n-step return) instead of
n-step returns; several epochs of minibatches on every rollout; eta and a_i are softplus of a real
number, not projected to be positive; normals have a diagonal covariance that does not depend on s;
no PopArt, no memory; separate policy and value networks for vectors (one shared torso for images).
Time limits bootstrap from the true successor.
Evidence: none at published scale yet; probe worlds and an oracle in tests/contract/.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling.algorithms.online import ppo
from sterling.equations.limited_improvement import (
    NEVER,
    improved_weights,
    limited_kl_losses,
    positive,
    raw_dual,
    temperature_loss,
    upper_half,
)
from sterling.equations.masked_average import masked_mean
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Finite,
    Limit,
    NotNegative,
    Positive,
    Share,
    Sizes,
)
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config

can_use_unseen = True  # by the critic


@config
class Config:
    """Limits are those of the paper, as far as it gives one number; ``lr`` and what divides a
    rollout suit fewer steps than its."""

    lr: NotNegative = 1e-3  # Adam's initial step size, of networks, eta and a_i
    gamma: Share = 0.99  # discount per step
    gae_lambda: Share = 0.95  # lambda of the advantage estimator
    temperature: Positive = 1.0  # initial eta, in units of returns
    temperature_kl: NotNegative = 0.01  # e_eta: KL of the weights from equal ones
    multiplier: Positive = 1.0  # initial a_i
    choices_kl: NotNegative = 0.01  # e_i: mean KL of choices, in nats
    mean_kl: NotNegative = 0.01  # e_i: mean KL by the means of continuous actions
    deviation_kl: NotNegative = 5e-5  # e_i: mean KL by their deviations
    target_period: Count = 1  # iterations until pi_old becomes pi
    max_grad_norm: Limit = float("inf")  # gradients are clipped to this global norm
    length: Count = 256  # steps of each env per iteration
    minibatch: Count = 256  # rows per update; an epoch's last update may have fewer
    epochs: Count = 10  # passes over a rollout
    anneal: bool = False  # step size falls linearly to 0 over the run
    normalise_obs: bool = True  # normalise observations by their running mean and std
    normalise_reward: bool = True  # divide rewards by the running std of the discounted return
    width: Sizes = 64  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu or gelu; after convolutions: relu
    layer_norm: bool = False  # normalise the hidden layers of policy and value
    log_std: Finite = 0.0  # initial log standard deviation of continuous actions


class Nets(ppo.ActorCritic):
    """Policy, value, and the real numbers that stand for eta and a_i, by name."""

    duals: dict[str, Float[Array, ""]]


class OldPolicy(eqx.Module):
    """The parts of pi_old."""

    torso: Encoder
    policy: MLP
    log_std: Float[Array, "outputs"]


class State(ppo.State):
    """Everything that changes during training."""

    nets: Nets
    target: OldPolicy


def needs(config: Config) -> Rollouts:
    """Ask for fresh rollouts of ``length`` steps of each env."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent: ppo's networks, their copy pi_old, and the dual variables."""
    fields: Any = ppo.Config
    names = {each.name for each in dataclasses.fields(fields)} & set(vars(config))
    created = ppo.init(key, spec, ppo.Config(**{name: getattr(config, name) for name in names}))
    old, width = created.nets, created.nets.actions.outputs
    pi: Any = old.actions.distribution(jnp.zeros(width), None, old.log_std)
    duals = {name: raw_dual(config.multiplier) for name in pi.kl_parts(pi)}
    nets = Nets(**vars(old), duals=duals | {"temperature": raw_dual(config.temperature)})
    changed = {"nets": nets, "optimiser": adam().init(nets), "config": config}
    return State(**(vars(created) | changed), target=jax.tree.map(jnp.copy, _policy_parts(nets)))


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of pi_old, or its mode without ``explore``."""
    return ppo.act(_with_old_policy(state), obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi_old(a|s) of actions in the form that ``act`` returns."""
    return ppo.log_prob(_with_old_policy(state), obs, action)


def value(state: State, obs: Obs) -> Float[Array, "..."]:
    """Return the critic's estimate of the return, in units of normalised rewards."""
    return ppo.value(state, obs)


def advantage(state: State, batch: Record) -> Float[Array, "time env"]:
    """Return A_t of a rollout's rows, without learning from them."""
    return ppo.advantage(state, batch)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make several epochs of minibatch updates on one rollout ``(time, env, ...)``."""
    config = state.config
    rewards = state.reward_statistics.update(batch.reward, batch.last, batch.mask, config.gamma)
    rows = ppo.rollout_rows(state, batch, rewards.scale(batch.reward))
    old = _with_old_policy(state).nets
    rows["old"] = old.distribution(old.torso(rows["obs"]), rows["allowed"])
    nets, optimiser, metrics = ppo.run_epochs(state, rows, key, loss)
    due = (state.iteration + 1.0) % config.target_period == 0.0
    learned = dataclasses.replace(
        state,
        nets=nets,
        target=jax.tree.map(lambda x, y: jnp.where(due, x, y), _policy_parts(nets), state.target),
        optimiser=optimiser,
        obs_statistics=state.obs_statistics.update(batch.obs, batch.mask),
        reward_statistics=rewards,
        iteration=state.iteration + 1.0,
    )
    return learned, Signals(metrics, {"advantage": rows["advantage"].reshape(batch.mask.shape)})


def loss(
    nets: Nets, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return L of the module docstring on a minibatch of rows, and metrics."""
    mask, features = rows["mask"], nets.torso(rows["obs"])
    pi, value = nets.distribution(features, rows["allowed"]), nets.value(features)[..., 0]
    duals = {name: positive(raw) for name, raw in nets.duals.items()}
    improvement, temperature = improvement_losses(
        pi.log_prob(rows["action"]), rows, duals["temperature"], config
    )
    value_loss = masked_mean(0.5 * jnp.square(value - rows["advantage"] - rows["value"]), mask)
    kls = rows["old"].kl_parts(pi)
    limited, metrics = limited_kl_losses(kls, duals, kl_limits(config), mask)
    total = improvement + temperature + limited + value_loss
    return total, metrics | {
        "loss/policy": improvement,
        "loss/value": value_loss,
        "policy/entropy": masked_mean(pi.entropy(), mask),
        "policy/temperature": duals["temperature"],
    }


def kl_limits(config: Any) -> dict[str, Float[Array, ""] | float]:
    """Return the limits e_i, by the parts of the KL. ``config`` may be any with their fields."""
    return {
        "choices": config.choices_kl,
        "mean": config.mean_kl,
        "deviation": config.deviation_kl,
    }


def improvement_losses(
    log_prob: Float[Array, "row"],
    rows: dict[str, Any],
    temperature: Float[Array, ""],
    config: Config,
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Return L_pi and L_eta of the module docstring; 0 if no row counts."""
    mask, advantage = rows["mask"], rows["advantage"]
    upper = upper_half(advantage, mask)
    count = jnp.sum(upper).astype(jnp.float32)
    log_prior = jnp.where(upper, -jnp.log(jnp.maximum(count, 1.0)), NEVER)
    weight, log_mean = improved_weights(advantage, log_prior, temperature)
    improvement = -jnp.sum(jnp.where(upper, weight * log_prob, 0.0))
    counts = (count > 0.0).astype(jnp.float32)
    return improvement, counts * temperature_loss(temperature, log_mean, config.temperature_kl)


def _policy_parts(nets: ppo.ActorCritic) -> OldPolicy:
    """Return the parts of a policy."""
    return OldPolicy(nets.torso, nets.policy, nets.log_std)


def _with_old_policy(state: State) -> State:
    """Return the state with pi_old in the place of pi."""
    return dataclasses.replace(state, nets=dataclasses.replace(state.nets, **vars(state.target)))

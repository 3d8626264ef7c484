"""Model-agnostic meta-learning (Finn 2017, arXiv:1703.03400, algorithm 3).

    tasks       env i stays in one task for an iteration: it takes the steps D_i with pi_theta,
                adapts to them, and takes the steps D'_i with the adapted pi_theta_i
    inner       J_i(theta) = E_D_i[ pi_theta(a|s) / pi_old(a|s) A ]
    adaptation  theta_i = theta + alpha grad J_i(theta),  inner_steps times
    outer       L_pi(theta) = -E_i,D'_i[ min(rho A, clip(rho, 1-e, 1+e) A) ],
                rho = pi_theta_i(a|s) / pi_old_i(a|s); its gradient goes through the adaptation
    value       L_V = 1/2 E_D[ (V_0(s) - target)^2 ] + 1/2 E_D'[ (V_1(s) - target)^2 ]
    total       L = L_pi + c_V L_V - c_H E_D'[ H(pi_theta_i(.|s)) ]

Advantages are GAE, standardised per env, because V does not observe the task. At the theta that
collected D_i the ratio is 1, and grad J_i is the paper's policy gradient; the derivative of this
form is unbiased, while that of the paper's estimator lacks a term (Rothfuss 2019,
arXiv:1810.06784). ``first_order`` treats grad J_i as a constant (the paper's section 5.2).

Deviations from the paper: PPO's clipped loss in place of TRPO in the outer loop, which makes
several steps on one rollout without conjugate gradients through second derivatives (as Rothfuss
2019); learned values V_0 before and V_1 after adaptation in place of a linear fit per task; several
inner steps use the same rows; a number of steps per task in place of a number of episodes; the
image torso and the values do not adapt. The statistics of observations and rewards are those of
past rollouts, so that learning recomputes exactly the theta_i that acted.
Evidence: tests/contract/test_adaptation_probe.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.online import ppo
from sterling.equations.masked_average import masked_mean, standardise
from sterling.equations.policy_losses import clipped_surrogate, kl_estimate
from sterling.equations.returns import continues, gae
from sterling.field_types import Activation, Count, Depth, Finite, Limit, NotNegative, Share, Sizes
from sterling.nets.action_heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder, action_mask
from sterling.nets.optimiser import adam, descend
from sterling.nets.running_statistics import ObsNormaliser, RewardNormaliser
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config


@config
class Config:
    """Defaults of alpha, the inner step and the networks are the paper's, those of PPO Rothfuss's
    (2019)."""

    lr: NotNegative = 1e-3  # Adam's initial step size
    inner_lr: NotNegative = 0.1  # alpha: step size of the adaptation
    gamma: Share = 0.99  # discount per step
    gae_lambda: Share = 0.95  # lambda of the advantage estimator
    clip: Limit = 0.3  # e: largest change of the probability ratio
    entropy_coef: NotNegative = 0.0  # c_H
    value_coef: NotNegative = 0.5  # c_V
    max_grad_norm: Limit = 0.5  # gradients are clipped to this global norm
    target_kl: Limit | None = None  # stop an iteration's updates beyond 1.5 times this KL
    adapt_length: Count = 200  # steps of each env before adaptation
    length: Count = 200  # steps of each env after adaptation
    inner_steps: Count = 1  # gradient steps per adaptation
    first_order: bool = False  # treat the inner gradient as a constant
    epochs: Count = 5  # updates per iteration, each on all rows
    anneal: bool = False  # step size falls linearly to 0 over the run
    normalise_obs: bool = True  # normalise observations by running moments
    normalise_reward: bool = True  # divide rewards by the running std of the discounted return
    width: Sizes = 100  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu or gelu; after convolutions: relu
    layer_norm: bool = False  # normalise the hidden layers
    log_std: Finite = 0.0  # initial log standard deviation of continuous actions


class State(ppo.State):
    """Everything that changes during training: PPO's state, with two values per observation."""

    planned: Float[Array, ""]  # rollouts planned


def needs(config: Config) -> Rollouts:
    """Ask for fresh rollouts: ``adapt_length`` steps of each env, then ``length`` adapted ones."""
    return Rollouts(config.adapt_length + config.length, adapt=config.adapt_length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent."""
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    actions = Actions.from_space(spec.action)
    sizes = (torso.size, *torso.hidden_sizes(config.width, config.depth))
    activation, norm = torso.hidden_activation(config.activation), config.layer_norm
    policy_key, value_key = (random_keys.fold(key, name) for name in ("policy", "value"))
    nets = ppo.ActorCritic(
        torso,
        MLP.orthogonal(policy_key, (*sizes, actions.outputs), activation, 0.01, layer_norm=norm),
        MLP.orthogonal(value_key, (*sizes, 2), activation, 1.0, layer_norm=norm),
        jnp.zeros(actions.outputs) + config.log_std,
        actions,
    )
    return State(
        nets,
        adam().init(nets),
        ObsNormaliser.create(spec.obs, config.normalise_obs),
        RewardNormaliser.create(spec.envs, config.normalise_reward),
        jnp.zeros(()),
        jnp.asarray(float(spec.iterations)),
        config,
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return ppo.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return ppo.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "..."]:
    """Return V_1, the estimated return of an adapted policy, in units of normalised rewards."""
    return state.nets.value(state.nets.torso(state.obs_statistics(obs)))[..., 1]


def adapt(state: State, batch: Record, key: Key[Array, ""]) -> State:
    """Return the state with theta_i in place of theta, from rows ``(time, env, ...)`` of a task."""
    nets = adapted_nets(state.nets, rollout_rows(state, batch, 0), state.config)
    return eqx.tree_at(lambda state: state.nets, state, nets)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make several updates on one rollout ``(time, env, ...)``, with another task in each env."""
    config, count = state.config, state.config.adapt_length
    halves = {
        "before": jax.tree.map(lambda x: x[:count], batch),
        "after": jax.tree.map(lambda x: x[count:], batch),
    }
    rows = {
        name: rollout_rows(state, half, head) for head, (name, half) in enumerate(halves.items())
    }

    def update(carry: Any, _: None) -> tuple[Any, Any]:
        return ppo.gradient_step(state, carry, rows, loss)

    start = (state.nets, state.optimiser, jnp.asarray(True))
    (nets, optimiser, _), metrics = jax.lax.scan(update, start, length=config.epochs)
    metrics = jax.tree.map(lambda x: x.mean(), metrics)
    for name, half in halves.items():
        metrics[f"adaptation/reward_{name}"] = masked_mean(half.reward, half.mask)
    moments = state.obs_statistics.update(batch.obs, batch.mask)
    zero = jnp.zeros_like(state.reward_statistics.running)  # every rollout starts new episodes
    rewards = dataclasses.replace(state.reward_statistics, running=zero)
    rewards = rewards.update(batch.reward, batch.last, batch.mask, config.gamma)
    learned = State(nets, optimiser, moments, rewards, state.iteration + 1.0, state.planned, config)
    return learned, Signals(metrics)


def loss(
    nets: ppo.ActorCritic, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return L of the module docstring on rows ``(env, time, ...)`` before and after adaptation,
    and metrics."""
    before, after = rows["before"], rows["after"]
    nets_per_env = jax.vmap(lambda rows: adapted_nets(nets, rows, config))(before)
    pi = jax.vmap(row_policy)(nets_per_env, after)
    mask, log_ratio = after["mask"], pi.log_prob(after["action"]) - after["log_prob"]
    ratio = jnp.exp(log_ratio)
    errors = [
        masked_mean(0.5 * jnp.square(row_values(nets, each, head) - each["target"]), each["mask"])
        for head, each in enumerate((before, after))
    ]
    policy_loss = masked_mean(clipped_surrogate(ratio, after["advantage"], config.clip), mask)
    value_loss, entropy = errors[0] + errors[1], masked_mean(pi.entropy(), mask)
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    clipped = jnp.abs(ratio - 1.0) > config.clip
    return total, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "policy/entropy": entropy,
        "policy/kl": masked_mean(kl_estimate(log_ratio), mask),
        "policy/clipped": masked_mean(clipped.astype(jnp.float32), mask),
    }


def adapted_nets(nets: ppo.ActorCritic, rows: dict[str, Any], config: Config) -> ppo.ActorCritic:
    """Return the networks with theta_i, from rows of one task with any leading axes."""

    def with_theta(theta: Any) -> ppo.ActorCritic:
        return eqx.tree_at(lambda nets: (nets.policy, nets.log_std), nets, theta)

    def inner_loss(theta: Any) -> Float[Array, ""]:
        log_prob = row_policy(with_theta(theta), rows).log_prob(rows["action"])
        ratio = jnp.exp(log_prob - rows["log_prob"])
        return -masked_mean(ratio * rows["advantage"], rows["mask"])

    theta = (nets.policy, nets.log_std)
    for _ in range(config.inner_steps):
        gradient = jax.grad(inner_loss)(theta)
        if config.first_order:
            gradient = jax.lax.stop_gradient(gradient)
        theta = descend(theta, gradient, config.inner_lr)
    return with_theta(theta)


def row_policy(nets: ppo.ActorCritic, rows: dict[str, Any]) -> Any:
    """Return pi(.|s) of the rows."""
    return nets.distribution(nets.torso(rows["obs"]), rows["allowed"])


def row_values(nets: ppo.ActorCritic, rows: dict[str, Any], head: int) -> Float[Array, "..."]:
    """Return V_0 (``head`` 0) or V_1 (``head`` 1) of the rows."""
    return nets.value(nets.torso(rows["obs"]))[..., head]


def rollout_rows(state: State, batch: Record, head: int) -> dict[str, Any]:
    """Return a rollout ``(time, env, ...)`` as rows ``(env, time, ...)`` with normalised
    observations, and with advantages and targets by V_0 or V_1 (``head``)."""
    config, nets = state.config, state.nets
    obs = state.obs_statistics(ppo.all_observations(batch))
    value = row_values(nets, {"obs": obs}, head)
    advantage = gae(
        state.reward_statistics.scale(batch.reward),
        config.gamma * batch.discount,
        value[:-1],
        value[1:],
        continues(batch.last, batch.mask),
        lam=config.gae_lambda,
    )
    rows = {
        "allowed": action_mask(batch.obs, nets.actions.sizes),
        "obs": jax.tree.map(lambda x: x[:-1], obs),
        "action": nets.actions.flat(batch.action),
        "log_prob": batch.extras["log_prob"],
        "target": advantage + value[:-1],
        "advantage": advantage,
        "mask": batch.mask,
    }
    rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
    return rows | {"advantage": jax.vmap(standardise)(rows["advantage"], rows["mask"])}

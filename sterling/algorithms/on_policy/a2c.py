"""Advantage actor-critic, synchronous (A2C; Mnih 2016, arXiv:1602.01783).

    advantage   A_t  = sum_k (gamma lambda)^k delta_{t+k}       (lambda = 1: up to n-step returns)
    policy      L_pi = -E[ log pi(a|s) A ]
    value       L_V  = E[ (V(s) - (A + V_old(s)))^2 ]
    total       L    = L_pi + c_V L_V - c_H E[ H(pi(.|s)) ]
    update      v <- d v + (1 - d) g^2,   theta <- theta - lr g / (sqrt(v) + 1e-5)      (RMSprop)

A_t is a constant in L_pi. Every rollout is learned from once, with all of its rows.

Deviations from the paper: environments step together instead of in asynchronous threads; gradients
are averaged over rows, not summed; the step size is constant (``anneal``: falls linearly to 0);
gradients are clipped by their global norm; separate policy and value networks for vectors (one
shared torso for images), orthogonal weights. Time limits bootstrap from the true successor. PPO
with one epoch and one minibatch has the same gradients (Huang 2022, arXiv:2205.09123).
Evidence: tests/contract/test_probes.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
from jaxtyping import Array, Float, Key

from sterling.algorithms.online import ppo
from sterling.equations.masked_average import masked_mean, standardise
from sterling.field_types import Activation, Count, Depth, Finite, Limit, NotNegative, Share, Sizes
from sterling.nets.optimiser import descend, global_norm, rmsprop
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config

can_use_unseen = True  # by the critic


@config
class Config:
    """Defaults are those of Stable-Baselines3 for vectors."""

    lr: NotNegative = 7e-4  # RMSprop's initial step size
    gamma: Share = 0.99  # discount per step
    gae_lambda: Share = 1.0  # lambda of the advantage estimator
    entropy_coef: NotNegative = 0.0  # c_H: weight of the entropy
    value_coef: NotNegative = 0.5  # c_V: weight of the value loss
    max_grad_norm: Limit = 0.5  # gradients are clipped to this global norm
    decay: Share = 0.99  # d: RMSprop's average of squared gradients forgets at 1 - d
    length: Count = 5  # steps of each env per iteration
    anneal: bool = False  # step size falls linearly to 0 over the run
    normalise_advantage: bool = False  # standardise the advantages of a rollout
    normalise_obs: bool = False  # normalise observations by their running mean and std
    normalise_reward: bool = False  # divide rewards by the running std of the discounted return
    width: Sizes = 64  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu or gelu; after convolutions: relu
    layer_norm: bool = False  # normalise the hidden layers of policy and value
    log_std: Finite = 0.0  # initial log standard deviation of continuous actions


def needs(config: Config) -> Rollouts:
    """Ask for fresh rollouts of ``length`` steps of each env."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> ppo.State:
    """Create an agent: ppo's networks, and RMSprop's average of squared gradients."""
    fields: Any = ppo.Config
    names = {each.name for each in dataclasses.fields(fields)} & set(vars(config))
    shared = {name: getattr(config, name) for name in names} | {"minibatch": 1}
    created = ppo.init(key, spec, ppo.Config(**shared))
    optimiser = rmsprop(config.decay).init(created.nets)
    return dataclasses.replace(created, optimiser=optimiser, config=config)


def act(
    state: ppo.State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return ppo.act(state, obs, key, explore)


def log_prob(state: ppo.State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return ppo.log_prob(state, obs, action)


def value(state: ppo.State, obs: Obs) -> Float[Array, "..."]:
    """Return the critic's estimate of the return, in units of normalised rewards."""
    return ppo.value(state, obs)


def advantage(state: ppo.State, batch: Record) -> Float[Array, "time env"]:
    """Return A_t of a rollout's rows, without learning from them."""
    return ppo.advantage(state, batch)


def learn(state: ppo.State, batch: Record, key: Key[Array, ""]) -> tuple[ppo.State, Signals]:
    """Make one update on a rollout ``(time, env, ...)``. ``key`` is not used."""
    config = state.config
    rewards = state.reward_statistics.update(batch.reward, batch.last, batch.mask, config.gamma)
    rows = ppo.rollout_rows(state, batch, rewards.scale(batch.reward))
    grads, metrics = jax.grad(loss, has_aux=True)(state.nets, rows, config)
    optimiser = rmsprop(config.decay, 1e-5, config.max_grad_norm)
    direction, moments = optimiser.update(grads, state.optimiser)
    lr = config.lr * (1.0 - state.iteration / state.planned if config.anneal else 1.0)
    learned = dataclasses.replace(
        state,
        nets=descend(state.nets, direction, lr),
        optimiser=moments,
        obs_statistics=state.obs_statistics.update(batch.obs, batch.mask),
        reward_statistics=rewards,
        iteration=state.iteration + 1.0,
    )
    metrics = {**metrics, "loss/grad_norm": global_norm(grads)}
    return learned, Signals(metrics, {"advantage": rows["advantage"].reshape(batch.mask.shape)})


def loss(
    nets: ppo.ActorCritic, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return L of the module docstring on a rollout's rows, and metrics."""
    mask, advantage, features = rows["mask"], rows["advantage"], nets.torso(rows["obs"])
    target = advantage + rows["value"]
    if config.normalise_advantage:
        advantage = standardise(advantage, mask)
    pi, value = nets.distribution(features, rows["allowed"]), nets.value(features)[..., 0]
    policy_loss = -masked_mean(pi.log_prob(rows["action"]) * advantage, mask)
    value_loss = masked_mean((value - target) ** 2, mask)
    entropy = masked_mean(pi.entropy(), mask)
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    return total, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "policy/entropy": entropy,
    }

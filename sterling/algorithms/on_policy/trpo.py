"""Trust region policy optimisation (TRPO; Schulman 2015, arXiv:1502.05477).

    advantage   A_t  = sum_k (gamma lambda)^k delta_{t+k}             (GAE, Schulman 2016)
    surrogate   L(theta) = E[ pi(a|s) / pi_old(a|s) A ],     g = dL / d theta
    curvature   F v  = d/d theta ( d KL(pi_old || pi) / d theta . v ) + damping v
    direction   F x  = g                                              (conjugate gradient)
    step        theta <- theta_old + b^j sqrt(2 delta / (x . F x)) x
                j: the smallest with KL(pi_old || pi) <= delta and L(theta) > L(theta_old)
    value       L_V  = E[ (V(s) - (A + V_old(s)))^2 ]                 (Adam, several epochs)

If no j below ``line_search_steps`` will do, the policy stays. The KL is an average over the rows.

Deviations from the paper: advantages by GAE with a learned V and standardised per rollout, damping,
V trained by Adam (the choices of sb3-contrib); F is computed from all rows. The policy's step also
moves a torso that encodes images; V learns from its features and does not move it. Time limits
bootstrap from the true successor.
Evidence: tests/contract/test_probes.py.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Key

from sterling.algorithms.online import ppo
from sterling.equations.masked_average import masked_mean, standardise
from sterling.equations.minibatches import minibatch_indices
from sterling.equations.trust_region import backtracking, conjugate_gradient
from sterling.field_types import Activation, Count, Depth, Finite, Limit, NotNegative, Share, Sizes
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config

can_use_unseen = True  # by the critic


@config
class Config:
    """Defaults are sb3-contrib's, whose 2048 rows of one env are ``length`` times 8 envs here."""

    lr: NotNegative = 1e-3  # Adam's step size, of V
    gamma: Share = 0.99  # discount per step
    gae_lambda: Share = 0.95  # lambda of the advantage estimator
    target_kl: Limit = 0.01  # delta: largest mean KL of a step
    damping: NotNegative = 0.1  # added to the diagonal of F
    cg_steps: Count = 15  # largest number of conjugate gradient's steps
    shrink: Share = 0.8  # b: factor between two tries of the line search
    line_search_steps: Count = 10  # largest number of tries
    length: Count = 256  # steps of each env per iteration
    minibatch: Count = 128  # rows per update of V; an epoch's last update may have fewer
    critic_epochs: Count = 10  # passes of V over a rollout
    normalise_advantage: bool = True  # standardise the advantages of a rollout
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
    """Create an agent: ppo's networks, and Adam's moments of V alone."""
    fields: Any = ppo.Config
    names = {each.name for each in dataclasses.fields(fields)} & set(vars(config))
    created = ppo.init(key, spec, ppo.Config(**{name: getattr(config, name) for name in names}))
    return dataclasses.replace(created, optimiser=adam().init(created.nets.value), config=config)


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
    """Make one step of the policy and several epochs of V's on one rollout ``(time, env, ...)``."""
    config = state.config
    rewards = state.reward_statistics.update(batch.reward, batch.last, batch.mask, config.gamma)
    rows = ppo.rollout_rows(state, batch, rewards.scale(batch.reward))
    (torso, policy, log_std), metrics = policy_step(state.nets, rows, config)
    critic, optimiser, value_loss = critic_epochs(state, rows, key)
    nets = ppo.ActorCritic(torso, policy, critic, log_std, state.nets.actions)
    learned = dataclasses.replace(
        state,
        nets=nets,
        optimiser=optimiser,
        obs_statistics=state.obs_statistics.update(batch.obs, batch.mask),
        reward_statistics=rewards,
        iteration=state.iteration + 1.0,
    )
    metrics = {**metrics, "loss/value": value_loss}
    return learned, Signals(metrics, {"advantage": rows["advantage"].reshape(batch.mask.shape)})


def policy_step(
    nets: ppo.ActorCritic, rows: dict[str, Any], config: Config
) -> tuple[Any, dict[str, Float[Array, ""]]]:
    """Return torso, policy and log deviations after the step of the docstring, and metrics."""
    mask, advantage, actions = rows["mask"], rows["advantage"], nets.actions
    if config.normalise_advantage:
        advantage = standardise(advantage, mask)
    start, rebuild = ravel_pytree((nets.torso, nets.policy, nets.log_std))

    def distribution(theta: Float[Array, "number"]) -> Any:
        torso, policy, log_std = rebuild(theta)
        return actions.distribution(policy(torso(rows["obs"])), rows["allowed"], log_std)

    def surrogate(theta: Float[Array, "number"]) -> Float[Array, ""]:
        log_ratio = distribution(theta).log_prob(rows["action"]) - rows["log_prob"]
        return masked_mean(jnp.exp(log_ratio) * advantage, mask)

    old = distribution(start)

    def kl(theta: Float[Array, "number"]) -> Float[Array, ""]:
        return masked_mean(old.kl(distribution(theta)), mask)

    def product(vector: Float[Array, "number"]) -> Float[Array, "number"]:
        return jax.jvp(jax.grad(kl), (start,), (vector,))[1] + config.damping * vector

    before, slope = jax.value_and_grad(surrogate)(start)
    direction = conjugate_gradient(product, slope, config.cg_steps)
    curvature = jnp.maximum(direction @ product(direction), 1e-30)
    longest = jnp.sqrt(2.0 * config.target_kl / curvature) * direction

    def accepts(share: Float[Array, ""]) -> Any:
        theta = start + share * longest
        return (kl(theta) <= config.target_kl) & (surrogate(theta) > before)

    share = backtracking(accepts, config.shrink, config.line_search_steps)
    end = start + share * longest
    metrics = {"loss/policy": -surrogate(end), "policy/kl": kl(end), "policy/step": share}
    return rebuild(end), metrics | {"policy/entropy": masked_mean(old.entropy(), mask)}


def critic_epochs(
    state: ppo.State, rows: dict[str, Any], key: Key[Array, ""]
) -> tuple[MLP, Any, Float[Array, ""]]:
    """Return V after all its updates, Adam's moments and the mean of L_V."""
    config, count = state.config, rows["mask"].size
    features, target = state.nets.torso(rows["obs"]), rows["advantage"] + rows["value"]

    def error(critic: MLP, index: Int[Array, "minibatch"]) -> Float[Array, ""]:
        wrong = critic(features[index])[..., 0] - target[index]
        return masked_mean(wrong**2, rows["mask"][index] & (index >= 0))

    def update(carry: Any, index: Int[Array, "minibatch"]) -> tuple[Any, Float[Array, ""]]:
        critic, optimiser = carry
        loss, grads = jax.value_and_grad(error)(critic, index)
        direction, optimiser = adam().update(grads, optimiser)
        return (descend(critic, direction, config.lr), optimiser), loss

    order = minibatch_indices(key, count, config.minibatch, config.critic_epochs)
    (critic, optimiser), losses = jax.lax.scan(update, (state.nets.value, state.optimiser), order)
    return critic, optimiser, losses.mean()

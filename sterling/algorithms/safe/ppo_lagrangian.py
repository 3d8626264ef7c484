"""PPO with a limit on an episode's expected cost (Ray 2019, "Benchmarking safe exploration").

    problem      max E[return]   subject to   E[cost of an episode] <= d
    multiplier   m <- max(0, m + eta (C - d)),   C the mean cost of the rollout's finished episodes
    advantage    A = (A_r - m A_c) / (1 + m)     of the reward and of the cost, both by GAE
    policy       PPO's clipped objective of A (ppo.py)
    values       1/2 E[ (V - R)^2 ] + 1/2 E[ (V_c - R_c)^2 ],   R and R_c the estimated returns

The cost is a channel of the environment (``Spec.channels``), one number per step, whose sum over an
episode is limited. Deviations from the paper: the multiplier makes plain ascent steps and is at
least 0, where the paper uses Adam on a number whose softplus is the multiplier; the combined
advantages are standardised per minibatch; policy and values share gradient steps, as in ppo.py. If
no episode ended in a rollout, the multiplier stays. The stochastic policy meets the limit; its mode
may cost more. Evidence: benchmarks/results/constraint.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.online import ppo
from sterling.equations.masked_average import masked_mean
from sterling.equations.returns import continues, gae
from sterling.field_types import Activation, Count, Depth, Finite, Limit, NotNegative, Share, Sizes
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import action_mask
from sterling.nets.optimiser import adam
from sterling.types import Action, Mistake, Obs, Record, Rollouts, Signals, Spec, config


@config
class Config:
    """Defaults are ppo's; limit and channel are those of Ray 2019."""

    cost: str = "cost"  # the limited channel
    cost_limit: Finite = 25.0  # d: largest mean cost of an episode
    multiplier_lr: NotNegative = 0.05  # eta: the multiplier's step size
    lr: NotNegative = 3e-4  # Adam's initial step size
    gamma: Share = 0.99  # discount per step, of rewards and costs
    gae_lambda: Share = 0.95  # lambda of both advantage estimators
    clip: Limit = 0.2  # e: largest change of the probability ratio
    entropy_coef: NotNegative = 0.0  # c_H: weight of the entropy
    value_coef: NotNegative = 0.5  # c_V: weight of both value losses
    max_grad_norm: Limit = 0.5  # gradients are clipped to this global norm
    target_kl: Limit | None = None  # stop an iteration's updates beyond 1.5 times this KL
    length: Count = 256  # steps of each env per iteration
    minibatch: Count = 256  # rows per update; an epoch's last update may have fewer
    epochs: Count = 10  # passes over a rollout
    anneal: bool = True  # step size falls linearly to 0 over the run
    clip_value: bool = False  # also clip the change of the reward's V, at e
    normalise_advantage: bool = True  # standardise advantages per minibatch
    normalise_obs: bool = True  # normalise observations by their running mean and std
    normalise_reward: bool = False  # divide rewards by the running std of the discounted return
    width: Sizes = 64  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu or gelu; after convolutions: relu
    layer_norm: bool = False  # normalise the hidden layers of policy and values
    log_std: Finite = 0.0  # initial log standard deviation of continuous actions


class Nets(ppo.ActorCritic):
    """Policy, value, and the value of costs."""

    cost: MLP


class State(ppo.State):
    """Everything that changes during training."""

    nets: Nets
    multiplier: Float[Array, ""]  # m


def needs(config: Config) -> Rollouts:
    """Ask for fresh rollouts of ``length`` steps of each env."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent."""
    check_cost_channel(spec, config.cost)
    fields: Any = ppo.Config
    shared = {each.name: getattr(config, each.name) for each in dataclasses.fields(fields)}
    created = ppo.init(key, spec, ppo.Config(**shared))
    own, policy = created.nets, created.nets.policy
    sizes = (own.torso.size, *own.torso.hidden_sizes(config.width, config.depth), 1)
    activation, norm = own.torso.hidden_activation(config.activation), config.layer_norm
    cost_key = random_keys.fold(key, "cost")
    cost = MLP.orthogonal(cost_key, sizes, activation, 1.0, layer_norm=norm)
    nets = Nets(own.torso, policy, own.value, own.log_std, own.actions, cost)
    changed = {"nets": nets, "optimiser": adam().init(nets), "config": config}
    return State(**(vars(created) | changed), multiplier=jnp.zeros(()))


def check_cost_channel(spec: Spec, name: str) -> None:
    """Raise Mistake if the environment does not report this cost."""
    channel = spec.channels.get(name)
    if channel is None or channel.parts or channel.reduce != "sum":
        sums = [each for each, x in spec.channels.items() if not x.parts and x.reduce == "sum"]
        wrong = f"The environment reports no channel {name!r} of one number that is summed"
        remedy = "Set cost to one of these." if sums else "Use an environment that has one."
        raise Mistake(f"{wrong}; it reports {', '.join(sums) or 'none'}. {remedy}")


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return ppo.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return ppo.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the critic's estimate of the return, in units of normalised rewards."""
    return ppo.value(state, obs)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the multiplier, then make several epochs of minibatch updates on one rollout."""
    config = state.config
    rewards = state.reward_statistics.update(batch.reward, batch.last, batch.mask, config.gamma)
    multiplier = updated_multiplier(state, batch)
    rows = _rollout_rows(state, batch, rewards.scale(batch.reward), multiplier)
    nets, optimiser, metrics = ppo.run_epochs(state, rows, key, loss)
    learned = dataclasses.replace(
        state,
        nets=nets,
        optimiser=optimiser,
        obs_statistics=state.obs_statistics.update(batch.obs, batch.mask),
        reward_statistics=rewards,
        iteration=state.iteration + 1.0,
        multiplier=multiplier,
    )
    samples = {"advantage": rows["advantage"].reshape(batch.mask.shape)}
    return learned, Signals(metrics | {"constraint/multiplier": multiplier}, samples)


def loss(
    nets: Nets, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return PPO's loss on a minibatch of rows plus that of the costs' value, and metrics."""
    features = nets.torso(rows["obs"])
    pi = nets.distribution(features, rows["allowed"])
    total, metrics = ppo.objective(pi, nets.value(features)[..., 0], rows, config)
    error = 0.5 * jnp.square(nets.cost(features)[..., 0] - rows["cost_target"])
    cost_loss = masked_mean(error, rows["mask"])
    return total + config.value_coef * cost_loss, {**metrics, "loss/cost": cost_loss}


def updated_multiplier(state: Any, batch: Record) -> Float[Array, ""]:
    """Return the multiplier after this rollout's episodes. ``state`` may be any object with
    ``multiplier`` and a ``config`` with this file's cost fields."""
    config, ended = state.config, batch.last & batch.mask
    cost = masked_mean(batch.extras[f"episode/{config.cost}"], ended)
    step = config.multiplier_lr * (cost - config.cost_limit)
    return jnp.where(ended.any(), jnp.maximum(state.multiplier + step, 0.0), state.multiplier)


def _rollout_rows(
    state: State, batch: Record, reward: Float[Array, "time env"], multiplier: Float[Array, ""]
) -> dict[str, Any]:
    """Return the rollout as flat rows with values, advantages and normalised observations."""
    config, nets = state.config, state.nets
    obs = state.obs_statistics(ppo.all_observations(batch))
    features = nets.torso(obs)

    def estimate(reward: Float[Array, "time env"], critic: MLP) -> tuple[Array, Array]:
        """Return advantages and values of a reward or cost."""
        values = critic(features)[..., 0]
        trace = continues(batch.last, batch.mask)
        discount = config.gamma * batch.discount
        pairs = (values[:-1], values[1:])
        return gae(reward, discount, *pairs, trace, lam=config.gae_lambda), pairs[0]

    reward_advantage, values = estimate(reward, nets.value)
    cost_advantage, cost_values = estimate(batch.extras[config.cost], nets.cost)
    rows = {
        "allowed": action_mask(batch.obs, nets.actions.sizes),
        "obs": jax.tree.map(lambda x: x[:-1], obs),
        "action": nets.actions.flat(batch.action),
        "log_prob": batch.extras["log_prob"],
        "value": values,
        "target": reward_advantage + values,
        "cost_target": cost_advantage + cost_values,
        "advantage": (reward_advantage - multiplier * cost_advantage) / (1.0 + multiplier),
        "mask": batch.mask,
    }
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

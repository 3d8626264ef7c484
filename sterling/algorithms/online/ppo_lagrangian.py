"""PPO under a limit on what an episode costs (Ray 2019, "Benchmarking safe exploration").

    problem      max E[return]   subject to   E[cost of an episode] <= d
    multiplier   m <- max(0, m + eta (C - d)),   C the mean cost of the rollout's finished episodes
    advantage    A = (A_r - m A_c) / (1 + m)     of the reward and of the cost, both by GAE
    policy       PPO's clipped objective of A (ppo.py)
    values       1/2 E[ (V - R)^2 ] + 1/2 E[ (V_c - R_c)^2 ],   R and R_c the estimated returns

The cost is a channel of the environment (``Spec.channels``), one number for each step, whose sum
over an episode is limited. Deviations from the paper: the multiplier ascends by plain steps and is
kept from falling below 0, where the paper moves a number by Adam whose softplus is the multiplier;
advantages are standardised per minibatch after they were joined; policy and values take the same
gradient steps, as in ppo.py. Where no episode ended in a rollout the multiplier stays. The
limit is met by the policy as it samples; its mode may cost more. Evidence:
benchmarks/results/constraint.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.algorithms.online import ppo
from sterling.equations.average import masked_mean
from sterling.equations.minibatches import shuffled
from sterling.equations.returns import continues, gae
from sterling.field_types import Activation, Count, Depth, Finite, Limit, NotNegative, Share
from sterling.nets.encoder import action_mask
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam
from sterling.types import Action, Mistake, Obs, Record, Rollouts, Signals, Spec, config


@config
class Config:
    """Defaults are ppo's, the limit and the channel those of Ray 2019."""

    cost: str = "cost"  # the channel that is limited
    cost_limit: Finite = 25.0  # d: what an episode may cost on average
    multiplier_lr: NotNegative = 0.05  # eta: how fast the multiplier ascends
    lr: NotNegative = 3e-4  # Adam's step size at the start
    gamma: Share = 0.99  # discount per step, of rewards and costs
    gae_lambda: Share = 0.95  # lambda of both advantage estimators
    clip: Limit = 0.2  # e: how far the probability ratio may move
    entropy_coef: NotNegative = 0.0  # c_H
    value_coef: NotNegative = 0.5  # c_V, of both values
    max_grad_norm: Limit = 0.5  # global norm that gradients are clipped to
    target_kl: Limit | None = None  # stop an iteration's updates beyond 1.5 times this KL
    length: Count = 256  # steps of each env per iteration
    minibatch: Count = 256  # rows per update; an epoch's last update may have fewer
    epochs: Count = 10  # passes over a rollout
    anneal: bool = True  # step size falls linearly to 0 over the run
    clip_value: bool = False  # clip the reward value's movement like the ratio's
    normalise_advantage: bool = True  # per minibatch
    normalise_obs: bool = True  # running mean and deviation
    normalise_reward: bool = False  # divide by the running deviation of the discounted return
    width: Count = 64  # units per hidden layer
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu
    log_std: Finite = 0.0  # initial log standard deviation of continuous actions


class Nets(ppo.ActorCritic):
    """Policy, value, and the value of costs."""

    cost: MLP


class State(ppo.State):
    """Everything that changes."""

    nets: Nets
    multiplier: Float[Array, ""]  # m


def needs(config: Config) -> Rollouts:
    """Fresh trajectories."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent."""
    check_channel(spec, config.cost)
    fields: Any = ppo.Config
    shared = {each.name: getattr(config, each.name) for each in dataclasses.fields(fields)}
    begun = ppo.init(key, spec, ppo.Config(**shared))
    own, policy = begun.nets, begun.nets.policy
    sizes = (own.torso.size, *(config.width,) * (len(policy.layers) - 1), 1)
    activation = config.activation if own.torso.is_flat else "relu"
    cost = MLP.orthogonal(keys.fold(key, "cost"), sizes, activation, 1.0)
    nets = Nets(own.torso, policy, own.value, own.log_std, own.actions, cost)
    return State(
        nets,
        adam().init(nets),
        begun.obs_statistics,
        begun.reward_statistics,
        begun.iteration,
        begun.planned,
        config,
        jnp.zeros(()),
    )


def check_channel(spec: Spec, name: str) -> None:
    """Raises Mistake where the environment reports no such cost."""
    channel = spec.channels.get(name)
    if channel is None or channel.parts or channel.reduce != "sum":
        sums = [each for each, x in spec.channels.items() if not x.parts and x.reduce == "sum"]
        said = f"the environment reports no channel {name!r} of one number that is summed"
        raise Mistake(f"{said}; it reports {', '.join(sums) or 'none'}: set cost to its name")


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of the policy, or its mode."""
    return ppo.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """log pi(a|s) of actions as ``act`` gives them."""
    return ppo.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """The critic's estimate of the return, in the units that rewards are learned in."""
    return ppo.value(state, obs)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Move the multiplier, then several epochs of minibatch updates on one rollout."""
    config = state.config
    rewards = state.reward_statistics.update(batch.reward, batch.last, batch.mask, config.gamma)
    multiplier = ascended(state, batch)
    rows = _advantages(state, batch, rewards.scale(batch.reward), multiplier)
    order = shuffled(key, batch.mask.size, config.minibatch, config.epochs)

    def update(carry: Any, chosen: Int[Array, "minibatch"]) -> tuple[Any, Any]:
        part = jax.tree.map(lambda x: x[chosen], rows)
        if batch.mask.size % config.minibatch:  # else there are no pads
            part["mask"] &= chosen >= 0
        return ppo.descended(state, carry, part, loss)

    start = (state.nets, state.optimiser, jnp.asarray(True))
    (nets, optimiser, _), metrics = jax.lax.scan(update, start, order)
    seen = state.obs_statistics.update(batch.obs, batch.mask)
    rest = (state.iteration + 1.0, state.planned, config, multiplier)
    metrics = jax.tree.map(lambda x: x.mean(), metrics) | {"constraint/multiplier": multiplier}
    samples = {"advantage": rows["advantage"].reshape(batch.mask.shape)}
    return State(nets, optimiser, seen, rewards, *rest), Signals(metrics, samples)


def loss(
    nets: Nets, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """PPO's on a minibatch of rows, and that of the value of costs."""
    features = nets.torso(rows["seen"])
    pi = nets.distribution(features, rows["allowed"])
    total, metrics = ppo.objective(pi, nets.value(features)[..., 0], rows, config)
    error = 0.5 * jnp.square(nets.cost(features)[..., 0] - rows["cost_target"])
    cost_loss = masked_mean(error, rows["mask"])
    return total + config.value_coef * cost_loss, {**metrics, "loss/cost": cost_loss}


def ascended(state: Any, batch: Record) -> Float[Array, ""]:
    """The multiplier after this rollout's episodes; of anything with ``multiplier`` and the fields
    of ``Config`` that say how it ascends."""
    config, ended = state.config, batch.last & batch.mask
    spent = masked_mean(batch.extras[f"episode/{config.cost}"], ended)
    moved = jnp.maximum(state.multiplier + config.multiplier_lr * (spent - config.cost_limit), 0.0)
    return jnp.where(ended.any(), moved, state.multiplier)


def _advantages(
    state: State,
    batch: Record,
    reward: Float[Array, "time env"],
    multiplier: Float[Array, ""],
) -> dict[str, Any]:
    """The rollout as flat rows with values, advantages and normalised observations."""
    config, nets = state.config, state.nets
    final = jax.tree.map(lambda x: x[-1:], batch.next_obs)
    every = jax.tree.map(lambda x, f: jnp.concatenate([x, f]), batch.obs, final)
    seen = state.obs_statistics(every)
    features = nets.torso(seen)

    def estimated(paid: Float[Array, "time env"], critic: MLP) -> tuple[Array, Array]:
        """Advantages and values of what is paid."""
        values = critic(features)[..., 0]
        traced = continues(batch.last, batch.mask)
        discount = config.gamma * batch.discount
        pairs = (values[:-1], values[1:])
        return gae(paid, discount, *pairs, traced, lam=config.gae_lambda), pairs[0]

    gained, values = estimated(reward, nets.value)
    spent, costs = estimated(batch.extras[config.cost], nets.cost)
    rows = {
        "allowed": action_mask(batch.obs),
        "seen": jax.tree.map(lambda x: x[:-1], seen),
        "action": nets.actions.flat(batch.action),
        "log_prob": batch.extras["log_prob"],
        "value": values,
        "target": gained + values,
        "cost_target": spent + costs,
        "advantage": (gained - multiplier * spent) / (1.0 + multiplier),
        "mask": batch.mask,
    }
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)

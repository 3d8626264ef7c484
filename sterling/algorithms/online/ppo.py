"""Proximal policy optimisation (Schulman 2017, arXiv:1707.06347).

    advantage   A_t  = sum_k (gamma lambda)^k delta_{t+k}             (GAE, Schulman 2016)
    policy      L_pi = -E[ min(rho A, clip(rho, 1-e, 1+e) A) ],       rho = pi(a|s) / pi_old(a|s)
    value       L_V  = 1/2 E[ (V(s) - (A + V_old(s)))^2 ]
    total       L    = L_pi + c_V L_V - c_H E[ H(pi(.|s)) ]

Deviations from the paper, all customary: advantages standardised per minibatch, separate policy
and value networks for vectors (one shared torso for pictures), orthogonal weights, global gradient
clipping, linearly annealed step size, running normalisation of observations and rewards. What
observations are centred by is of past rollouts, so the first minibatch has rho = 1 exactly; the
rewards' deviation counts the present one. Time limits bootstrap from the true successor.
Evidence: benchmarks/scores/, docs/scores.md.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.equations.average import masked_mean, standardise
from sterling.equations.minibatches import shuffled
from sterling.equations.policy import clipped_surrogate, clipped_value, kl_estimate
from sterling.equations.returns import continues, gae
from sterling.field_types import Activation, Count, Depth, Finite, Limit, NotNegative, Share
from sterling.nets.encoder import Encoder, action_mask
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser, RewardNormaliser
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.types import Action, Mistake, Obs, Record, Rollouts, Signals, Spec, config


@config
class Config:
    """Defaults are those published for MuJoCo (Schulman 2017, table 3; Engstrom 2020), but for
    ``minibatch``, which is 64 there."""

    lr: NotNegative = 3e-4  # Adam's step size at the start
    gamma: Share = 0.99  # discount per step
    gae_lambda: Share = 0.95  # lambda of the advantage estimator
    clip: Limit = 0.2  # e: how far the probability ratio may move
    entropy_coef: NotNegative = 0.0  # c_H
    value_coef: NotNegative = 0.5  # c_V
    max_grad_norm: Limit = 0.5  # global norm that gradients are clipped to
    target_kl: Limit | None = None  # stop an iteration's updates beyond 1.5 times this KL
    length: Count = 256  # steps of each env per iteration
    minibatch: Count = 256  # rows per update; an epoch's last update may have fewer
    epochs: Count = 10  # passes over a rollout
    anneal: bool = True  # step size falls linearly to 0 over the run
    clip_value: bool = False  # clip the value's movement like the ratio's
    normalise_advantage: bool = True  # per minibatch
    normalise_obs: bool = True  # running mean and deviation
    normalise_reward: bool = True  # divide by the running deviation of the discounted return
    width: Count = 64  # units per hidden layer
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu
    log_std: Finite = 0.0  # initial log standard deviation of continuous actions


class ActorCritic(eqx.Module):
    """Policy and value; ``torso`` encodes pictures for both and learns nothing for vectors."""

    torso: Encoder
    policy: MLP
    value: MLP
    log_std: Float[Array, "outputs"]
    actions: Actions = eqx.field(static=True)

    def distribution(self, features: Float[Array, "... features"], allowed: Any) -> Any:
        """pi(.|s), over the ``allowed`` actions where the world says which are."""
        return self.actions.distribution(self.policy(features), allowed, self.log_std)


class State(eqx.Module):
    """Everything that changes."""

    nets: ActorCritic
    optimiser: optax.OptState
    obs_statistics: ObsNormaliser
    reward_statistics: RewardNormaliser
    iteration: Float[Array, ""]  # rollouts learned from
    planned: Float[Array, ""]  # rollouts planned
    config: Any  # a Config, also of those who share this state


def needs(config: Config) -> Rollouts:
    """Fresh trajectories."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent."""
    rows = spec.envs * config.length
    if not 0 < config.minibatch <= rows:
        said = f"minibatch={config.minibatch} does not fit into a rollout of {rows} rows"
        raise Mistake(f"{said} (envs x length); give a minibatch of at most that")
    torso = Encoder.create(keys.fold(key, "torso"), spec.obs)
    actions = Actions.of(spec.action)
    sizes = (torso.size, *(config.width,) * (config.depth if torso.is_flat else 1))
    activation = config.activation if torso.is_flat else "relu"
    nets = ActorCritic(
        torso,
        MLP.orthogonal(keys.fold(key, "policy"), (*sizes, actions.outputs), activation, 0.01),
        MLP.orthogonal(keys.fold(key, "value"), (*sizes, 1), activation, 1.0),
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
    """A sample of the policy, or its mode."""
    pi, actions = _policy(state, obs), state.nets.actions
    if not explore:
        return actions.shaped(pi.mode()), {}
    action = pi.sample(key)
    return actions.shaped(action), {"log_prob": pi.log_prob(action)}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """log pi(a|s) of actions as ``act`` gives them."""
    return _policy(state, obs).log_prob(state.nets.actions.flat(action))


def value(state: State, obs: Obs) -> Float[Array, "..."]:
    """The critic's estimate of the return, in the units that rewards are learned in."""
    return state.nets.value(state.nets.torso(state.obs_statistics(obs)))[..., 0]


def advantage(state: State, batch: Record) -> Float[Array, "time env"]:
    """A_t of the rows of a rollout, without learning from them."""
    rows = _advantages(state, batch, state.reward_statistics.scale(batch.reward))
    return rows["advantage"].reshape(batch.mask.shape)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Several epochs of minibatch updates on one rollout ``(time, env, ...)``."""
    config = state.config
    rewards = state.reward_statistics.update(batch.reward, batch.last, batch.mask, config.gamma)
    rows = _advantages(state, batch, rewards.scale(batch.reward))
    order = shuffled(key, batch.mask.size, config.minibatch, config.epochs)

    def update(carry: Any, chosen: Int[Array, "minibatch"]) -> tuple[Any, Any]:
        part = jax.tree.map(lambda x: x[chosen], rows)
        if batch.mask.size % config.minibatch:  # else there are no pads
            part["mask"] &= chosen >= 0
        return descended(state, carry, part, loss)

    start = (state.nets, state.optimiser, jnp.asarray(True))
    (nets, optimiser, _), metrics = jax.lax.scan(update, start, order)
    seen = state.obs_statistics.update(batch.obs, batch.mask)
    learned = State(nets, optimiser, seen, rewards, state.iteration + 1.0, state.planned, config)
    metrics = jax.tree.map(lambda x: x.mean(), metrics)
    return learned, Signals(metrics, {"advantage": rows["advantage"].reshape(batch.mask.shape)})


def loss(
    nets: ActorCritic, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """L of the module docstring on a minibatch of rows."""
    features = nets.torso(rows["seen"])
    pi = nets.distribution(features, rows["allowed"])
    return objective(pi, nets.value(features)[..., 0], rows, config)


def objective(
    pi: Any, value: Float[Array, "..."], rows: dict[str, Any], config: Any
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """L of the module docstring, given policy and values of the rows. The rows' ``target`` is what
    values learn; without it, A + V_old."""
    mask, advantage = rows["mask"], rows["advantage"]
    if config.normalise_advantage:
        advantage = standardise(advantage, mask)
    log_ratio = pi.log_prob(rows["action"]) - rows["log_prob"]
    ratio = jnp.exp(log_ratio)
    target = rows["target"] if "target" in rows else rows["advantage"] + rows["value"]
    policy_loss = masked_mean(clipped_surrogate(ratio, advantage, config.clip), mask)
    if config.clip_value:
        value_error = clipped_value(value, rows["value"], target, config.clip)
    else:
        value_error = 0.5 * jnp.square(value - target)
    value_loss = masked_mean(value_error, mask)
    entropy, clipped = masked_mean(pi.entropy(), mask), jnp.abs(ratio - 1.0) > config.clip
    total = policy_loss + config.value_coef * value_loss - config.entropy_coef * entropy
    return total, {
        "loss/policy": policy_loss,
        "loss/value": value_loss,
        "policy/entropy": entropy,
        "policy/kl": masked_mean(kl_estimate(log_ratio), mask),
        "policy/clipped": masked_mean(clipped.astype(jnp.float32), mask),
    }


def descended(
    state: Any, carry: Any, rows: dict[str, Any], loss: Any
) -> tuple[Any, dict[str, Array]]:
    """One gradient step, unless the policy has already moved too far in this iteration."""
    nets, optimiser, going = carry
    config = state.config
    grads, metrics = jax.grad(loss, has_aux=True)(nets, rows, config)
    direction, moved = adam(1e-5, config.max_grad_norm).update(grads, optimiser)
    lr = config.lr * (1.0 - state.iteration / state.planned if config.anneal else 1.0)
    metrics = {**metrics, "loss/grad_norm": global_norm(grads)}
    if config.target_kl is None:
        return (descend(nets, direction, lr), moved, going), metrics
    going = going & (metrics["policy/kl"] <= 1.5 * config.target_kl)
    nets = descend(nets, direction, jnp.where(going, lr, 0.0))
    optimiser = jax.tree.map(lambda new, old: jnp.where(going, new, old), moved, optimiser)
    return (nets, optimiser, going), metrics


def _advantages(state: State, batch: Record, reward: Float[Array, "time env"]) -> dict[str, Any]:
    """The rollout as flat rows with values, advantages and normalised observations. A rollout's
    ``next_obs`` is the next row's ``obs``, so values are computed once per row."""
    config, nets = state.config, state.nets
    final = jax.tree.map(lambda x: x[-1:], batch.next_obs)
    every = jax.tree.map(lambda x, f: jnp.concatenate([x, f]), batch.obs, final)
    seen = state.obs_statistics(every)
    values = nets.value(nets.torso(seen))[..., 0]
    advantage = gae(
        reward,
        config.gamma * batch.discount,
        values[:-1],
        values[1:],
        continues(batch.last, batch.mask),
        lam=config.gae_lambda,
    )
    rows = {
        "allowed": action_mask(batch.obs),
        "seen": jax.tree.map(lambda x: x[:-1], seen),
        "action": nets.actions.flat(batch.action),
        "log_prob": batch.extras["log_prob"],
        "value": values[:-1],
        "advantage": advantage,
        "mask": batch.mask,
    }
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


def _policy(state: State, obs: Obs) -> Any:
    """pi(.|s)."""
    features = state.nets.torso(state.obs_statistics(obs))
    return state.nets.distribution(features, action_mask(obs))

"""Proximal policy optimisation (Schulman 2017, arXiv:1707.06347).

    advantage   A_t  = sum_k (gamma lambda)^k delta_{t+k}             (GAE, Schulman 2016)
    policy      L_pi = -E[ min(rho A, clip(rho, 1-e, 1+e) A) ],       rho = pi(a|s) / pi_old(a|s)
    value       L_V  = 1/2 E[ (V(s) - (A + V_old(s)))^2 ]
    total       L    = L_pi + c_V L_V - c_H E[ H(pi(.|s)) ]

Deviations from the paper, all customary: advantages standardised per minibatch, separate policy
and value networks for vectors (one shared torso for images), orthogonal weights, global gradient
clipping, linearly annealed step size, running normalisation of observations and rewards (that of
observations by past rollouts, so the first minibatch has rho = 1 exactly; of rewards with the
current one). Time limits bootstrap from the true successor.
Evidence: benchmarks/scores/, docs/scores.md.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.equations.masked_average import masked_mean, standardise
from sterling.equations.minibatches import check_minibatch, minibatch_indices
from sterling.equations.policy_losses import clipped_surrogate, clipped_value_loss, kl_estimate
from sterling.equations.returns import continues, gae
from sterling.field_types import Activation, Count, Depth, Finite, Limit, NotNegative, Share, Sizes
from sterling.nets.action_heads import Actions
from sterling.nets.encoding.unseen_features import without_unseen_features
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder, action_mask
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.nets.running_statistics import ObsNormaliser, RewardNormaliser
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config

can_use_unseen = True  # by the critic


@config
class Config:
    """Defaults are MuJoCo's (Schulman 2017, table 3; Engstrom 2020), except ``minibatch``: 64."""

    lr: NotNegative = 3e-4  # Adam's initial step size
    gamma: Share = 0.99  # discount per step
    gae_lambda: Share = 0.95  # lambda of the advantage estimator
    clip: Limit = 0.2  # e: largest change of the probability ratio
    entropy_coef: NotNegative = 0.0  # c_H: weight of the entropy
    value_coef: NotNegative = 0.5  # c_V: weight of the value loss
    max_grad_norm: Limit = 0.5  # gradients are clipped to this global norm
    target_kl: Limit | None = None  # stop an iteration's updates beyond 1.5 times this KL
    length: Count = 256  # steps of each env per iteration
    minibatch: Count = 256  # rows per update; an epoch's last update may have fewer
    epochs: Count = 10  # passes over a rollout
    anneal: bool = True  # step size falls linearly to 0 over the run
    clip_value: bool = False  # also clip the change of V, at e
    normalise_advantage: bool = True  # standardise advantages per minibatch
    normalise_obs: bool = True  # normalise observations by their running mean and std
    normalise_reward: bool = True  # divide rewards by the running std of the discounted return
    width: Sizes = 64  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers
    activation: Activation = "tanh"  # tanh, relu, silu, elu or gelu; after convolutions: relu
    layer_norm: bool = False  # normalise the hidden layers of policy and value
    log_std: Finite = 0.0  # initial log standard deviation of continuous actions


class ActorCritic(eqx.Module):
    """Policy and value; ``torso`` encodes images for both and has no parameters for vectors."""

    torso: Encoder
    policy: MLP
    value: MLP
    log_std: Float[Array, "outputs"]
    actions: Actions = eqx.field(static=True)

    def distribution(self, features: Float[Array, "... features"], allowed: Any) -> Any:
        """Return pi(.|s), over the ``allowed`` actions (None: all)."""
        return self.actions.distribution(self.policy(features), allowed, self.log_std)


class State(eqx.Module):
    """Everything that changes during training."""

    nets: ActorCritic
    optimiser: optax.OptState
    obs_statistics: ObsNormaliser
    reward_statistics: RewardNormaliser
    iteration: Float[Array, ""]  # rollouts learned from
    planned: Float[Array, ""]  # rollouts planned
    config: Any  # a Config, also that of algorithms which share this class


def needs(config: Config) -> Rollouts:
    """Ask for fresh rollouts of ``length`` steps of each env."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent."""
    check_minibatch(config.minibatch, spec.envs * config.length)
    torso = Encoder.create(random_keys.fold(key, "torso"), spec)
    actions = Actions.from_space(spec.action)
    sizes = (torso.size, *torso.hidden_sizes(config.width, config.depth))
    activation, norm = torso.hidden_activation(config.activation), config.layer_norm
    actor_key, value_key = (random_keys.fold(key, name) for name in ("policy", "value"))
    policy = MLP.orthogonal(actor_key, (*sizes, actions.outputs), activation, 0.01, layer_norm=norm)
    policy = without_unseen_features(policy, torso, spec)
    value = MLP.orthogonal(value_key, (*sizes, 1), activation, 1.0, layer_norm=norm)
    nets = ActorCritic(torso, policy, value, jnp.zeros(actions.outputs) + config.log_std, actions)
    moments = ObsNormaliser.create(spec.obs, config.normalise_obs)
    rewards = RewardNormaliser.create(spec.envs, config.normalise_reward)
    planned = jnp.asarray(float(spec.iterations))
    return State(nets, adam().init(nets), moments, rewards, jnp.zeros(()), planned, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    pi, actions = _policy_distribution(state, obs), state.nets.actions
    if not explore:
        return actions.shaped(pi.mode()), {}
    action = pi.sample(key)
    return actions.shaped(action), {"log_prob": pi.log_prob(action)}


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return _policy_distribution(state, obs).log_prob(state.nets.actions.flat(action))


def value(state: State, obs: Obs) -> Float[Array, "..."]:
    """Return the critic's estimate of the return, in units of normalised rewards."""
    return state.nets.value(state.nets.torso(state.obs_statistics(obs)))[..., 0]


def advantage(state: State, batch: Record) -> Float[Array, "time env"]:
    """Return A_t of a rollout's rows, without learning from them."""
    rows = rollout_rows(state, batch, state.reward_statistics.scale(batch.reward))
    return rows["advantage"].reshape(batch.mask.shape)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make several epochs of minibatch updates on one rollout ``(time, env, ...)``."""
    config = state.config
    rewards = state.reward_statistics.update(batch.reward, batch.last, batch.mask, config.gamma)
    rows = rollout_rows(state, batch, rewards.scale(batch.reward))
    nets, optimiser, metrics = run_epochs(state, rows, key, loss)
    moments = state.obs_statistics.update(batch.obs, batch.mask)
    learned = State(nets, optimiser, moments, rewards, state.iteration + 1.0, state.planned, config)
    return learned, Signals(metrics, {"advantage": rows["advantage"].reshape(batch.mask.shape)})


def run_epochs(
    state: Any, rows: dict[str, Any], key: Key[Array, ""], loss: Any, sizes: Any = None
) -> tuple[Any, optax.OptState, dict[str, Array]]:
    """Make the gradient steps of all epochs; return networks, optimiser and mean metrics. ``sizes``
    are the minibatch and the epochs, if not the Config's."""
    config, count = state.config, rows["mask"].size
    rows_per_update, epochs = sizes or (config.minibatch, config.epochs)

    def update(carry: Any, index: Int[Array, "minibatch"]) -> tuple[Any, Any]:
        minibatch = jax.tree.map(lambda x: x[index], rows)
        if count % rows_per_update:  # otherwise there is no padding
            minibatch["mask"] &= index >= 0
        return gradient_step(state, carry, minibatch, loss)

    order = minibatch_indices(key, count, rows_per_update, epochs)
    start = (state.nets, state.optimiser, jnp.asarray(True))
    (nets, optimiser, _), metrics = jax.lax.scan(update, start, order)
    return nets, optimiser, jax.tree.map(lambda x: x.mean(), metrics)


def loss(
    nets: ActorCritic, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return L of the module docstring on a minibatch of rows, and metrics."""
    features = nets.torso(rows["obs"])
    pi = nets.distribution(features, rows["allowed"])
    return objective(pi, nets.value(features)[..., 0], rows, config)


def objective(
    pi: Any, value: Float[Array, "..."], rows: dict[str, Any], config: Any
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return L of the module docstring and metrics, given policy and values of the rows. Values
    learn the rows' ``target``, or without one A + V_old."""
    mask, advantage = rows["mask"], rows["advantage"]
    if config.normalise_advantage:
        advantage = standardise(advantage, mask)
    log_ratio = pi.log_prob(rows["action"]) - rows["log_prob"]
    ratio = jnp.exp(log_ratio)
    target = rows["target"] if "target" in rows else rows["advantage"] + rows["value"]
    policy_loss = masked_mean(clipped_surrogate(ratio, advantage, config.clip), mask)
    if config.clip_value:
        value_error = clipped_value_loss(value, rows["value"], target, config.clip)
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


def gradient_step(
    state: Any, carry: Any, rows: dict[str, Any], loss: Any
) -> tuple[Any, dict[str, Array]]:
    """Make one gradient step, unless the KL has already exceeded its limit in this iteration (a
    Config may lack ``target_kl``)."""
    config, (nets, optimiser, active) = state.config, carry
    grads, metrics = jax.grad(loss, has_aux=True)(nets, rows, config)
    direction, moments = adam(1e-5, config.max_grad_norm).update(grads, optimiser)
    lr = config.lr * (1.0 - state.iteration / state.planned if config.anneal else 1.0)
    metrics = {**metrics, "loss/grad_norm": global_norm(grads)}
    if getattr(config, "target_kl", None) is None:
        return (descend(nets, direction, lr), moments, active), metrics
    active = active & (metrics["policy/kl"] <= 1.5 * config.target_kl)
    nets = descend(nets, direction, jnp.where(active, lr, 0.0))
    optimiser = jax.tree.map(lambda new, old: jnp.where(active, new, old), moments, optimiser)
    return (nets, optimiser, active), metrics


def rollout_rows(state: State, batch: Record, reward: Float[Array, "time env"]) -> dict[str, Any]:
    """Return the rollout as flat rows with values, advantages and normalised observations. A row's
    ``next_obs`` is the next row's ``obs``, so values are computed once per row."""
    config, nets, sizes = state.config, state.nets, state.nets.actions.sizes
    obs = state.obs_statistics(all_observations(batch))
    values = nets.value(nets.torso(obs))[..., 0]
    discount, trace = config.gamma * batch.discount, continues(batch.last, batch.mask)
    advantage = gae(reward, discount, values[:-1], values[1:], trace, lam=config.gae_lambda)
    rows = {
        **{"allowed": action_mask(batch.obs, sizes), "obs": jax.tree.map(lambda x: x[:-1], obs)},
        "action": nets.actions.flat(batch.action),
        "log_prob": batch.extras["log_prob"],
        "value": values[:-1],
        "advantage": advantage,
        "mask": batch.mask,
    }
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), rows)


def all_observations(batch: Record) -> Any:
    """Return a rollout's observations, and the one after its last row, ``(time + 1, env, ...)``."""
    last = jax.tree.map(lambda x: x[-1:], batch.next_obs)
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y]), batch.obs, last)


def _policy_distribution(state: State, obs: Obs) -> Any:
    """Return pi(.|s)."""
    features = state.nets.torso(state.obs_statistics(obs))
    return state.nets.distribution(features, action_mask(obs, state.nets.actions.sizes))

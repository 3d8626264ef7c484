"""Recurrent PPO: a policy with memory for partially observed environments.

    memory      h_t = GRU(h_{t-1}, tanh(W [features(s_t), a_{t-1}, r_{t-1}]))      h_{-1} = 0
    policy      pi(.|h_t)          value  V(h_t)          losses as in ppo.py

``memory`` chooses another unit than the GRU: an LSTM, a linear recurrent unit (lru) or a state
space layer (s5). The last two compute a rollout by an associative scan instead of step by step;
their equations are in nets/recurrence/linear_recurrence.py and state_space.py.

The previous action and reward are inputs beside the observation, so an agent can learn to adapt
within an episode whose environment is drawn anew (Duan 2016, "RL^2", arXiv:1611.02779). An update
uses whole rollouts of some environments; gradients flow back to their start (or the episode's),
where the memory is the one that the policy had when it acted. The value after a truncation uses the
memory that led there: memory is reset only in the row in which the environment resets.

Deviations from PPO's usual recurrent form: rows are not shuffled; policy and value share one
memory. Evidence: benchmarks/scores/, docs/scores.md.
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
from sterling.actor import Past
from sterling.algorithms.online import ppo
from sterling.equations.minibatches import minibatch_indices
from sterling.equations.returns import continues, gae
from sterling.field_types import Activation, Count, Finite, Limit, Memory, NotNegative, Share
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import action_mask
from sterling.nets.optimiser import adam
from sterling.nets.recurrence.recurrent_network import RecurrentCore
from sterling.nets.running_statistics import ObsNormaliser, RewardNormaliser
from sterling.types import Action, Mistake, Obs, Record, Rollouts, Signals, Spec, config


@config
class Config:
    """Defaults are ppo's for MuJoCo except ``minibatch``, ``length`` and ``entropy_coef``."""

    lr: NotNegative = 3e-4  # Adam's initial step size
    gamma: Share = 0.99  # discount per step
    gae_lambda: Share = 0.95  # lambda of the advantage estimator
    clip: Limit = 0.2  # e: largest change of the probability ratio
    entropy_coef: NotNegative = 0.01  # c_H: weight of the entropy
    value_coef: NotNegative = 0.5  # c_V: weight of the value loss
    max_grad_norm: Limit = 0.5  # gradients are clipped to this global norm
    target_kl: Limit | None = None  # stop an iteration's updates beyond 1.5 times this KL
    length: Count = 128  # steps of each env per iteration; gradients reach no further back
    minibatch: Count = 512  # rows per update, whole rollouts of some envs: a multiple of length
    epochs: Count = 4  # passes over the rollouts
    anneal: bool = True  # step size falls linearly to 0 over the run
    clip_value: bool = False  # also clip the change of V, at e
    normalise_advantage: bool = True  # standardise advantages per minibatch
    normalise_obs: bool = True  # normalise observations by their running mean and std
    normalise_reward: bool = True  # divide rewards by the running std of the discounted return
    width: Count = 64  # size of the memory, and of hidden layers
    memory: Memory = "gru"  # kind of unit: gru, lstm, lru or s5 (both linear)
    activation: Activation = "tanh"  # before and after the memory: tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the hidden layers of policy and value
    log_std: Finite = 0.0  # initial log standard deviation of continuous actions


class Nets(RecurrentCore):
    """Memory, policy and value."""

    policy: MLP
    value: MLP
    log_std: Float[Array, "outputs"]

    def distribution(self, features: Float[Array, "... width"], allowed: Any) -> Any:
        """Return pi(.|h), over the ``allowed`` actions (None: all)."""
        return self.actions.distribution(self.policy(features), allowed, self.log_std)


class State(eqx.Module):
    """Everything that changes during training."""

    nets: Nets
    optimiser: optax.OptState
    obs_statistics: ObsNormaliser
    reward_statistics: RewardNormaliser
    iteration: Float[Array, ""]  # rollouts learned from
    planned: Float[Array, ""]  # rollouts planned
    config: Config


def needs(config: Config) -> Rollouts:
    """Ask for fresh rollouts of ``length`` steps of each env."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent."""
    rows = spec.envs * config.length
    if config.minibatch % config.length or not 0 < config.minibatch <= rows:
        wrong = f"minibatch={config.minibatch} must be a multiple of length={config.length}"
        raise Mistake(f"{wrong}, between {config.length} and {rows} (envs x length).")
    width, kind = config.width, config.activation
    shared = Nets.parts(key, spec, width, config.memory, kind)
    actions = shared[-1]

    def head(name: str, outputs: int, scale: float) -> MLP:
        own, norm = random_keys.fold(key, name), config.layer_norm
        return MLP.orthogonal(own, (width, width, outputs), kind, scale, layer_norm=norm)

    heads = head("policy", actions.outputs, 0.01), head("value", 1, 1.0)
    nets = Nets(*shared, *heads, jnp.zeros(actions.outputs) + config.log_std)
    return State(
        nets,
        adam().init(nets),
        ObsNormaliser.create(spec.obs, config.normalise_obs),
        RewardNormaliser.create(spec.envs, config.normalise_reward),
        jnp.zeros(()),
        jnp.asarray(float(spec.iterations)),
        config,
    )


def memory(state: State, envs: int, key: Key[Array, ""]) -> Float[Array, "env numbers"]:
    """Return the initial memory h_{-1} = 0."""
    return jnp.zeros((envs, state.nets.memory.size))


def recall(
    state: State, past: Past, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, Float[Array, "env numbers"], dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``, and h_t."""
    hidden, features = _remember(state, past, obs)
    actions = state.nets.actions
    pi = state.nets.distribution(features, action_mask(obs, actions.sizes))
    if not explore:
        return actions.shaped(pi.mode()), hidden, {}
    action = pi.sample(key)
    return actions.shaped(action), hidden, {"log_prob": pi.log_prob(action)}


def value(state: State, past: Past, obs: Obs, key: Key[Array, ""]) -> Float[Array, "env"]:
    """Return the critic's estimate of the return, in units of normalised rewards."""
    return state.nets.value(_remember(state, past, obs)[1])[..., 0]


def advantage(state: State, batch: Record) -> Float[Array, "time env"]:
    """Return A_t of a rollout's rows, without learning from them."""
    return _rollout_rows(state, batch, state.reward_statistics.scale(batch.reward))["advantage"]


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make several epochs of updates, each on the rollouts ``(time, env, ...)`` of some envs."""
    config, envs = state.config, batch.mask.shape[1]
    rewards = state.reward_statistics.update(batch.reward, batch.last, batch.mask, config.gamma)
    rows = _rollout_rows(state, batch, rewards.scale(batch.reward))
    order = minibatch_indices(key, envs, config.minibatch // config.length, config.epochs)

    def update(carry: Any, index: Int[Array, "env"]) -> tuple[Any, Any]:
        minibatch = jax.tree.map(lambda x: x[:, index], rows)
        minibatch["mask"] &= (index >= 0)[None]  # -1 pads an epoch's last minibatch
        return ppo.gradient_step(state, carry, minibatch, loss)

    start = (state.nets, state.optimiser, jnp.asarray(True))
    (nets, optimiser, _), metrics = jax.lax.scan(update, start, order)
    learned = dataclasses.replace(
        state,
        nets=nets,
        optimiser=optimiser,
        obs_statistics=state.obs_statistics.update(batch.obs, batch.mask),
        reward_statistics=rewards,
        iteration=state.iteration + 1.0,
    )
    metrics = jax.tree.map(lambda x: x.mean(), metrics)
    return learned, Signals(metrics, {"advantage": rows["advantage"]})


def loss(
    nets: Nets, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """Return PPO's loss on the rollouts ``(time, env, ...)`` of some envs, and metrics."""
    inputs = nets.inputs(rows["obs"], rows["past_action"], rows["past_reward"], rows["begins"])
    features = nets.unroll(rows["start"][0], inputs, rows["begins"])
    pi = nets.distribution(features, rows["allowed"])
    return ppo.objective(pi, nets.value(features)[..., 0], rows, config)


def _rollout_rows(state: State, batch: Record, reward: Float[Array, "time env"]) -> dict[str, Any]:
    """Return the rollouts with each row's previous action and reward, value, and advantage."""
    config, nets, start = state.config, state.nets, batch.start

    def previous(before: Array, each: Array) -> Array:
        """Return the previous row's entry, for every row and the observation after the last."""
        return jnp.concatenate([before[None], each])

    obs = state.obs_statistics(ppo.all_observations(batch))
    action = jax.tree.map(previous, start.action, batch.action)
    past_reward = previous(start.reward, batch.reward)
    # the last row's successor belongs to the same episode, if that row is valid
    begins = jnp.concatenate([batch.extras["begins"], jnp.zeros_like(start.first)[None]])
    inputs = nets.inputs(obs, action, past_reward, begins)
    values = nets.value(nets.unroll(start.memory, inputs, begins))[..., 0]
    discount, trace = config.gamma * batch.discount, continues(batch.last, batch.mask)
    advantage = gae(reward, discount, values[:-1], values[1:], trace, lam=config.gae_lambda)
    known = {"obs": obs, "past_action": action, "past_reward": past_reward}
    return jax.tree.map(lambda x: x[:-1], known) | {
        "begins": batch.extras["begins"],
        "start": start.memory[None],
        "allowed": action_mask(batch.obs, nets.actions.sizes),
        "action": nets.actions.flat(batch.action),
        "log_prob": batch.extras["log_prob"],
        "value": values[:-1],
        "advantage": advantage,
        "mask": batch.mask,
    }


def _remember(
    state: State, past: Past, obs: Obs
) -> tuple[Float[Array, "env numbers"], Float[Array, "env width"]]:
    """Return h_t and its features while acting."""
    return state.nets.remember(past, state.obs_statistics(obs))

"""PPO with a memory: a recurrent policy for what one observation does not tell.

    memory      h_t = GRU(h_{t-1}, tanh(W [features(s_t), a_{t-1}, r_{t-1}]))      h_{-1} = 0
    policy      pi(.|h_t)          value  V(h_t)          losses as in ppo.py

What was done and earned before is seen beside the observation, so an agent whose world is drawn
anew each episode can learn to learn within one (Duan 2016, "RL^2", arXiv:1611.02779). An update
sees whole rollouts of some environments; gradients flow back through them to their beginning (or
the episode's), where the memory is the one that the policy had when it acted. The value of what
follows a cut is asked of the memory that led there: it begins anew only in the row in which the
world resets.

Deviations from PPO's usual recurrent form: no shuffling of rows, one network of memory for policy
and value. Evidence: benchmarks/scores/, docs/scores.md.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.actor import Past
from sterling.algorithms.online import ppo
from sterling.equations.minibatches import shuffled
from sterling.equations.returns import continues, gae
from sterling.field_types import Count, Finite, Limit, NotNegative, Share
from sterling.nets.encoder import action_mask
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser, RewardNormaliser
from sterling.nets.optimiser import adam
from sterling.nets.recurrent import Recurrent
from sterling.types import Action, Mistake, Obs, Record, Rollouts, Signals, Spec, config


@config
class Config:
    """Defaults are ppo's for MuJoCo but for ``minibatch``, ``length`` and ``entropy_coef``."""

    lr: NotNegative = 3e-4  # Adam's step size at the start
    gamma: Share = 0.99  # discount per step
    gae_lambda: Share = 0.95  # lambda of the advantage estimator
    clip: Limit = 0.2  # e: how far the probability ratio may move
    entropy_coef: NotNegative = 0.01  # c_H
    value_coef: NotNegative = 0.5  # c_V
    max_grad_norm: Limit = 0.5  # global norm that gradients are clipped to
    target_kl: Limit | None = None  # stop an iteration's updates beyond 1.5 times this KL
    length: Count = 128  # steps of each env per iteration; gradients reach no further back
    minibatch: Count = 512  # rows per update, whole rollouts of some envs: a multiple of length
    epochs: Count = 4  # passes over the rollouts
    anneal: bool = True  # step size falls linearly to 0 over the run
    clip_value: bool = False  # clip the value's movement like the ratio's
    normalise_advantage: bool = True  # per minibatch
    normalise_obs: bool = True  # running mean and deviation
    normalise_reward: bool = True  # divide by the running deviation of the discounted return
    width: Count = 64  # numbers in the memory, and units per hidden layer
    log_std: Finite = 0.0  # initial log standard deviation of continuous actions


class Nets(Recurrent):
    """Memory, policy and value."""

    policy: MLP
    value: MLP
    log_std: Float[Array, "outputs"]

    def distribution(self, hidden: Float[Array, "... width"], allowed: Any) -> Any:
        """pi(.|h), over the ``allowed`` actions where the world says which are."""
        return self.actions.distribution(self.policy(hidden), allowed, self.log_std)


class State(eqx.Module):
    """Everything that changes."""

    nets: Nets
    optimiser: optax.OptState
    obs_statistics: ObsNormaliser
    reward_statistics: RewardNormaliser
    iteration: Float[Array, ""]  # rollouts learned from
    planned: Float[Array, ""]  # rollouts planned
    config: Config


def needs(config: Config) -> Rollouts:
    """Fresh trajectories."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent."""
    rows = spec.envs * config.length
    if config.minibatch % config.length or not 0 < config.minibatch <= rows:
        said = f"minibatch={config.minibatch} is not so many whole rollouts of {config.length} rows"
        raise Mistake(f"{said}; give a multiple of length, at most {rows} (envs x length)")
    width, shared = config.width, Nets.parts(key, spec, config.width)
    actions = shared[-1]
    nets = Nets(
        *shared,
        MLP.orthogonal(keys.fold(key, "policy"), (width, width, actions.outputs), "tanh", 0.01),
        MLP.orthogonal(keys.fold(key, "value"), (width, width, 1), "tanh", 1.0),
        jnp.zeros(actions.outputs) + config.log_std,
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


def memory(state: State, envs: int, key: Key[Array, ""]) -> Float[Array, "env width"]:
    """h_{-1}."""
    return jnp.zeros((envs, state.config.width))


def recall(
    state: State, past: Past, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, Float[Array, "env width"], dict[str, Array]]:
    """A sample of the policy, or its mode, and h_t."""
    hidden = _remembered(state, past, obs)
    pi, actions = state.nets.distribution(hidden, action_mask(obs)), state.nets.actions
    if not explore:
        return actions.shaped(pi.mode()), hidden, {}
    action = pi.sample(key)
    return actions.shaped(action), hidden, {"log_prob": pi.log_prob(action)}


def value(state: State, past: Past, obs: Obs) -> Float[Array, "env"]:
    """The critic's estimate of the return, in the units that rewards are learned in."""
    return state.nets.value(_remembered(state, past, obs))[..., 0]


def advantage(state: State, batch: Record) -> Float[Array, "time env"]:
    """A_t of the rows of a rollout, without learning from them."""
    return _advantages(state, batch, state.reward_statistics.scale(batch.reward))["advantage"]


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Several epochs of updates on the rollouts ``(time, env, ...)`` of some envs each."""
    config, envs = state.config, batch.mask.shape[1]
    rewards = state.reward_statistics.update(batch.reward, batch.last, batch.mask, config.gamma)
    rows = _advantages(state, batch, rewards.scale(batch.reward))
    together = config.minibatch // config.length
    order = shuffled(key, envs, together, config.epochs)

    def update(carry: Any, chosen: Int[Array, "env"]) -> tuple[Any, Any]:
        part = jax.tree.map(lambda x: x[:, chosen], rows)
        part["mask"] &= (chosen >= 0)[None]  # those that fill up an epoch's last minibatch
        return ppo.descended(state, carry, part, loss)

    start = (state.nets, state.optimiser, jnp.asarray(True))
    (nets, optimiser, _), metrics = jax.lax.scan(update, start, order)
    seen = state.obs_statistics.update(batch.obs, batch.mask)
    learned = State(nets, optimiser, seen, rewards, state.iteration + 1.0, state.planned, config)
    metrics = jax.tree.map(lambda x: x.mean(), metrics)
    return learned, Signals(metrics, {"advantage": rows["advantage"]})


def loss(
    nets: Nets, rows: dict[str, Any], config: Config
) -> tuple[Float[Array, ""], dict[str, Float[Array, ""]]]:
    """PPO's on the rollouts ``(time, env, ...)`` of some envs."""
    given = nets.inputs(rows["seen"], rows["done"], rows["earned"], rows["begins"])
    hidden = nets.memory.unroll(rows["start"][0], given, rows["begins"])
    pi = nets.distribution(hidden, rows["allowed"])
    return ppo.objective(pi, nets.value(hidden)[..., 0], rows, config)


def _advantages(state: State, batch: Record, reward: Float[Array, "time env"]) -> dict[str, Any]:
    """The rollouts with what came before each row, values, advantages, normalised observations."""
    config, nets, start = state.config, state.nets, batch.start

    def shifted(before: Array, each: Array) -> Array:
        """What the row before holds, for every row and the observation after the last."""
        return jnp.concatenate([before[None], each])

    final = jax.tree.map(lambda x: x[-1:], batch.next_obs)
    every = jax.tree.map(lambda x, f: jnp.concatenate([x, f]), batch.obs, final)
    seen = state.obs_statistics(every)
    done = jax.tree.map(shifted, start.action, batch.action)
    earned = shifted(start.reward, batch.reward)
    # the last row's successor belongs to its episode wherever that row is experience
    begins = jnp.concatenate([batch.extras["begins"], jnp.zeros_like(start.first)[None]])
    given = nets.inputs(seen, done, earned, begins)
    values = nets.value(nets.memory.unroll(start.memory, given, begins))[..., 0]
    advantage = gae(
        reward,
        config.gamma * batch.discount,
        values[:-1],
        values[1:],
        continues(batch.last, batch.mask),
        lam=config.gae_lambda,
    )
    before = jax.tree.map(lambda x: x[:-1], {"seen": seen, "done": done, "earned": earned})
    return before | {
        "begins": batch.extras["begins"],
        "start": start.memory[None],
        "allowed": action_mask(batch.obs),
        "action": nets.actions.flat(batch.action),
        "log_prob": batch.extras["log_prob"],
        "value": values[:-1],
        "advantage": advantage,
        "mask": batch.mask,
    }


def _remembered(state: State, past: Past, obs: Obs) -> Float[Array, "env width"]:
    """h_t."""
    return state.nets.recalled(past, state.obs_statistics(obs))

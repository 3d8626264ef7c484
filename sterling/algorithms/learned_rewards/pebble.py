"""PEBBLE: SAC with a reward learned from preferences (Lee 2021, arXiv:2106.05091).

    reward      r(s, a) = mean_m tanh(f_m(s, a))
    preference  P_m(second > first) = sigmoid( sum r_m(second) - sum r_m(first) )       (eq. 1)
    L_reward    = sum_m E[ -(1 - y) log P_m(first > second) - y log P_m(second > first) ]  (eq. 2)
    policy      SAC's update (sac.py) on replayed transitions with r(s, a) as their reward

y is a labeller's preference between two segments of the replay: 0 the first, 1 the second, 0.5
neither. experience/preferences/preference_queries.py asks for it before every ``ask_every``-th
iteration; the labellers are in experience/preferences/preference_labellers.py.

The paper relabels the entire replay whenever the reward model has changed (algorithm 2, line 20).
Here a row's reward is computed when the row is drawn, by the current model, so every row in a batch
has the same reward as after such a relabelling.

Deviations from the paper: no unsupervised pre-training, but random actions during ``warmup``.
Segments are drawn uniformly, not by the models' disagreement. The members see the same batches and
differ by their initial weights. The reward makes a fixed number of updates after each round of
labels, where the paper's code stops once its accuracy is high. Observations must be vectors of
floats.
Evidence: benchmarks/results/models.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.online import sac
from sterling.equations.masked_average import masked_mean
from sterling.equations.preference_losses import bradley_terry
from sterling.field_types import Count, Depth, NotNegative, Share, Sizes
from sterling.needs.feed import LABELS
from sterling.nets.action_heads import Actions
from sterling.nets.dynamics_network import observation_size
from sterling.nets.ensemble import Ensemble
from sterling.nets.mlp import MLP, hidden_sizes
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Feed, Labels, Mistake, Needs, Obs, Record, Signals, Spec, config


@config
class Config(sac.Config):
    """SAC's fields and the reward's; defaults are those of the paper's table 2, for locomotion in
    the DeepMind control suite."""

    segment: Count = 50  # steps of a compared segment
    queries: Count = 50  # pairs compared per round of labels
    ask_every: Count = 5_000  # iterations between rounds of labels; the first is at the start
    most_labels: Count = 1_000  # largest number of compared pairs in the whole run
    labeller: str = "return"  # who labels: return, ask (on the terminal) or FILE.py:object
    mistakes: Share = 0.0  # share of labels that are flipped
    members: Count = 3  # number of reward models
    reward_lr: NotNegative = 3e-4  # Adam's step size for the reward
    reward_batch: Count = 128  # pairs per update of the reward
    reward_updates: Count = 200  # updates of the reward after each round of labels
    reward_width: Sizes = 256  # units per hidden layer of a reward model, or of each layer
    reward_depth: Depth = 3  # hidden layers of a reward model


class State(eqx.Module):
    """Everything that changes during training."""

    policy: sac.State
    reward: MLP  # leaves (member, ...)
    optimiser: optax.OptState

    config = property(lambda self: self.policy.config, doc="The settings, kept with the policy.")


def needs(config: Config) -> Needs:
    """Ask for labelled pairs for the reward, and for transitions for the policy."""
    if config.n_step > 1:
        raise Mistake("pebble learns rewards of single rows. Remove n_step.")
    labels = Labels(
        config.segment,
        config.queries,
        config.ask_every,
        config.most_labels,
        config.labeller,
        float(config.mistakes),
    )
    reward = Feed(
        LABELS,
        "reward",
        config.reward_batch,
        config.reward_updates,
        config.ask_every,
        labels=labels,
    )
    rows = sac.needs(config)
    return Needs(config.collect, (reward, *rows.feeds), config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` if observations are not vectors of floats."""
    count = observation_size(spec.obs, "Use sac.")
    policy = sac.init(key, spec, config)
    hidden = hidden_sizes(config.reward_width, config.reward_depth)
    sizes = (count + policy.actor.actions.outputs, *hidden, 1)
    own = random_keys.fold(key, "reward")
    reward = Ensemble.create(own, config.members, lambda key: MLP.uniform(key, sizes)).nets
    return State(policy, reward, adam().init(reward))


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return what SAC returns."""
    return sac.act(state.policy, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return sac.log_prob(state.policy, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the policy once on transitions ``(batch, ...)``, with currently predicted rewards."""
    reward = predicted_rewards(state.reward, state.policy.actor.actions, batch).mean(0)
    policy, signals = sac.learn(state.policy, dataclasses.replace(batch, reward=reward), key)
    learned = dataclasses.replace(state, policy=policy)
    predicted = {"value/reward": masked_mean(reward, batch.mask)}
    return learned, Signals({**signals.metrics, **predicted}, signals.samples)


def learn_reward(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the reward models once on labelled pairs ``(batch, 2, time, ...)``."""
    actions = state.policy.actor.actions
    grads, metrics = jax.grad(reward_loss, has_aux=True)(state.reward, actions, batch)
    direction, optimiser = adam().update(grads, state.optimiser)
    reward = descend(state.reward, direction, state.config.reward_lr)
    return State(state.policy, reward, optimiser), Signals(metrics)


def predicted_rewards(reward: MLP, actions: Actions, batch: Record) -> Float[Array, "member ..."]:
    """Return each member's predicted reward of each row."""
    obs: Any = batch.obs
    x = jnp.concatenate([obs, actions.encode(batch.action)], -1)
    return jnp.tanh(Ensemble(reward)(x)[..., 0])


def reward_loss(
    reward: MLP, actions: Actions, batch: Record
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return L_reward of the module docstring, and metrics (means over members)."""
    y, labelled = batch.extras["preference"], batch.mask[:, 0, 0]

    def each(sums: Float[Array, "batch 2"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        first, second = sums[:, 0], sums[:, 1]
        nll = (1.0 - y) * bradley_terry(first, second) + y * bradley_terry(second, first)
        correct = ((second > first) == (y > 0.5)).astype(jnp.float32)
        return masked_mean(nll, labelled), masked_mean(correct, labelled & (y != 0.5))

    loss, accuracy = jax.vmap(each)(predicted_rewards(reward, actions, batch).sum(-1))
    return jnp.sum(loss), {"loss": jnp.mean(loss), "accuracy": jnp.mean(accuracy)}

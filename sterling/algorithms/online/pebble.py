"""PEBBLE: SAC whose reward is learned from preferences (Lee 2021, arXiv:2106.05091).

    reward      r(s, a) = mean_m tanh(f_m(s, a))
    preference  P_m(second > first) = sigmoid( sum r_m(second) - sum r_m(first) )       (eq. 1)
    L_reward    = sum_m E[ -(1 - y) log P_m(first > second) - y log P_m(second > first) ]  (eq. 2)
    policy      SAC's update (sac.py) on drawn transitions with r(s, a) in place of their reward

y is what a labeller said of two stretches of the replay: 0 the first, 1 the second, 0.5 neither
(experience/preferences.py asks, at a visit before every ``ask_every``-th iteration;
experience/labellers.py knows whom).

The paper rewrites the rewards of the entire replay whenever the reward model has changed (its
algorithm 2, line 20). Here the reward of a row is computed when the row is drawn, by the model as
it is then: every row that is learned from has the reward that it would have after such a rewriting,
and rows that are not drawn need none.

Deviations from the paper: no unsupervised pre-training; the ``warmup`` is random actions instead.
Stretches are drawn uniformly, not by the models' disagreement. The members see the same batches and
differ by their first weights. The reward learns a fixed number of updates at each visit, where the
paper's code stops once its accuracy is high. Observations must be vectors of floats.
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

from sterling import keys
from sterling.algorithms.online import sac
from sterling.equations.average import masked_mean
from sterling.equations.preference import bradley_terry
from sterling.field_types import Count, Depth, NotNegative, Share
from sterling.needs import LABELS
from sterling.nets.dynamics import numbers
from sterling.nets.heads import Actions
from sterling.nets.mlp import MLP
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Feed, Labels, Mistake, Needs, Obs, Record, Signals, Spec, config


@config
class Config(sac.Config):
    """SAC's fields, and those of the reward; defaults are those of the paper's table 2, for the
    locomotion of DeepMind's control suite."""

    segment: Count = 50  # steps of a stretch that is compared
    queries: Count = 50  # pairs compared at each visit
    ask_every: Count = 5_000  # iterations between visits; the first is before the first iteration
    most_labels: Count = 1_000  # pairs compared in all
    labeller: str = "return"  # who compares: return, ask (the terminal) or FILE.py:object
    mistakes: Share = 0.0  # share of answers that are turned round
    members: Count = 3  # reward models
    reward_lr: NotNegative = 3e-4  # Adam's step size for the reward
    reward_batch: Count = 128  # pairs per update of the reward
    reward_updates: Count = 200  # updates of the reward after each visit
    reward_width: Count = 256  # units per hidden layer of a reward model
    reward_depth: Depth = 3  # hidden layers of a reward model


class State(eqx.Module):
    """Everything that changes."""

    policy: sac.State
    reward: MLP  # leaves (member, ...)
    optimiser: optax.OptState

    config = property(lambda self: self.policy.config, doc="The settings, kept with the policy.")


def needs(config: Config) -> Needs:
    """Compared pairs for the reward, and transitions for the policy."""
    if config.n_step > 1:
        raise Mistake("pebble learns the reward of single rows; leave out n_step")
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
    """A new agent; raises :class:`Mistake` where observations are no vector of floats."""
    count = numbers(spec.obs, "take sac")
    policy = sac.init(key, spec, config)
    hidden = (config.reward_width,) * config.reward_depth
    sizes = (count + policy.actor.actions.outputs, *hidden, 1)
    each = keys.deal(keys.fold(key, "reward"), "member", config.members)
    reward = eqx.filter_vmap(lambda key: MLP.uniform(key, sizes))(each)
    return State(policy, reward, adam().init(reward))


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """As SAC."""
    return sac.act(state.policy, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """log pi(a|s) of actions as ``act`` gives them."""
    return sac.log_prob(state.policy, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of the policy on transitions ``(batch, ...)``, by the reward that is predicted
    now."""
    reward = rewards(state.reward, state.policy.actor.actions, batch).mean(0)
    policy, signals = sac.learn(state.policy, dataclasses.replace(batch, reward=reward), key)
    made = dataclasses.replace(state, policy=policy)
    predicted = {"value/reward": masked_mean(reward, batch.mask)}
    return made, Signals({**signals.metrics, **predicted}, signals.samples)


def learn_reward(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of the reward on pairs ``(batch, 2, time, ...)``."""
    actions = state.policy.actor.actions
    grads, metrics = jax.grad(reward_loss, has_aux=True)(state.reward, actions, batch)
    direction, optimiser = adam().update(grads, state.optimiser)
    reward = descend(state.reward, direction, state.config.reward_lr)
    return State(state.policy, reward, optimiser), Signals(metrics)


def rewards(reward: MLP, actions: Actions, batch: Record) -> Float[Array, "member ..."]:
    """What each member predicts for each row."""
    obs: Any = batch.obs
    x = jnp.concatenate([obs, actions.codes(batch.action)], -1)
    return jnp.tanh(eqx.filter_vmap(lambda net: net(x)[..., 0])(reward))


def reward_loss(
    reward: MLP, actions: Actions, batch: Record
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """L_reward of the module docstring; metrics are means over members."""
    y, known = batch.extras["preference"], batch.mask[:, 0, 0]

    def each(sums: Float[Array, "batch 2"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        first, second = sums[:, 0], sums[:, 1]
        missed = (1.0 - y) * bradley_terry(first, second) + y * bradley_terry(second, first)
        right = ((second > first) == (y > 0.5)).astype(jnp.float32)
        return masked_mean(missed, known), masked_mean(right, known & (y != 0.5))

    loss, accuracy = jax.vmap(each)(rewards(reward, actions, batch).sum(-1))
    return jnp.sum(loss), {"loss": jnp.mean(loss), "accuracy": jnp.mean(accuracy)}

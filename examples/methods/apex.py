"""Ape-X (Horgan 2018, arXiv:1803.00933) in one process: DQN from a prioritised replay whose new
rows come in with the actors' own TD errors as priorities.

    priority    p_i  = |y - Q(s, a)| + 1e-6,  when a row is collected and after each update on it
    draws       P(i) proportional to p_i^alpha
    weights     w_i  proportional to (1 / P(i))^beta, divided by their largest in the batch
    actors      epsilon_e = epsilon^(1 + 7 e / (E - 1)),   e = 0, ..., E - 1

alpha and beta are DQN's fields ``priority`` and ``correction``. Deviations: the actors act by the
newest network, and their TD error is that of one step, computed after each step. Rows of the random
warm-up have priority 1. Double and dueling networks are DQN's options, on by default. Two seeds
reached 168 and 232 in CartPole (random: 22) by

    sterling train examples/methods/apex.py CartPole-v1 --steps 20_000 --envs 8 --seeds 2
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from sterling import random_keys
from sterling.algorithms.online import dqn
from sterling.algorithms.online.dqn import State, learn, value
from sterling.equations.masked_average import masked_mean
from sterling.field_types import Share
from sterling.nets.action_heads import ONLINE, supported_actions
from sterling.types import Action, Feed, Needs, Obs, Record, Signals, Spec, config

__all__ = ["Config", "act", "init", "learn", "learn_arrivals", "needs", "value"]


@config
class Config(dqn.Config):
    """DQN's fields, with other defaults, and that of the actors."""

    lr = 1e-3
    batch = 64
    collect = 1
    capacity = 50_000
    warmup = 500
    target_period = 200
    double = True
    dueling = True
    width = 64
    priority = 0.6
    epsilon: Share = 0.4  # probability of a random action, of the actor that explores most


def needs(config: Config) -> Needs:
    """Ask for the new rows of each iteration, then for rows of the replay by their priorities."""
    arrivals = Feed("fresh", "arrivals", add=("place",))
    sizes = {"batch": config.batch, "updates": config.learn}
    drawn = Feed(**sizes, priority=config.priority, correction=config.correction)
    return Needs(config.collect, (arrivals, drawn), config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raise Mistake for actions that are not discrete."""
    supported_actions("apex", spec.action, ("discrete",), ONLINE)
    return dqn.init(key, spec, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return the best action; with ``explore`` and each actor's epsilon a random one."""
    action, _ = dqn.act(state, obs, key, False)
    if explore:
        actor = jnp.arange(action.shape[0], dtype=jnp.float32)
        epsilon = state.config.epsilon ** (1.0 + 7.0 * actor / max(len(actor) - 1, 1))
        draw, count = random_keys.split(key, "explore", 2), state.net.actions.outputs
        other = jax.random.randint(draw[0], action.shape, 0, count, action.dtype)
        action = jnp.where(jax.random.uniform(draw[1], action.shape) < epsilon, other, action)
    return action, {}


def learn_arrivals(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Return the TD errors of the rows just collected, ``(time, env, ...)``: their priorities."""
    rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), dataclasses.replace(batch, start=()))
    _, (_, error) = dqn.loss(state.net, state.target, rows, state.config)
    metrics = {"priority/new": masked_mean(jnp.abs(error), rows.mask)}
    return state, Signals(metrics, {"td_error": error})

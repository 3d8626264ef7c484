"""QMIX of agents that remember (Rashid 2018, arXiv:1803.11485, section 4; Hausknecht 2015, DRQN).

    memory      h_i = GRU(h_i, tanh(W [features(o_i), last a_i, last team reward])), one for all
    agents      Q_i = Q(h_i, .)
    team        Q_tot, its target and its loss are those of qmix.py, in every row of a sequence

Sequences are drawn from a replay that keeps the memories before each row. They begin with those,
and their memories are computed anew from there, by the networks and by the target networks.

Deviations beside those of qmix.py: sequences of a few rows, not whole episodes from an empty
memory, and every agent knows the reward that its team got in the step before. -0.108 [-0.134,
-0.083] after 60,000 steps (3 seeds); the optimum is -0.0963.

    sterling train examples/methods/recurrent_qmix.py spread:2-agents-3x3 --steps 60_000 --envs 8
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import qmix
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.actor import Past
from sterling.algorithms.online import dqn, r2d2
from sterling.equations.sequence_rows import time_major
from sterling.field_types import Count
from sterling.nets.mlp import MLP
from sterling.nets.obs_encoder import Encoder
from sterling.nets.optimiser import adam
from sterling.nets.recurrence.recurrent_network import RecurrentCore
from sterling.nets.special_layers.monotone_mixer import MonotoneMixer
from sterling.problem.team_obs import TeamObs
from sterling.types import Action, Feed, Needs, Obs, Record, Signals, Spec, config

several_agents = True  # for environments with several agents
uses_unseen = True  # by the mixer only


@config
class Config(qmix.Config):
    """The fields of QMIX; a batch is one of sequences."""

    batch = 32  # sequences per update
    length: Count = 8  # rows of a sequence
    capacity = 50_000  # replay capacity in rows (each with its memories), per seed


class Nets(RecurrentCore):
    """The memory and the values of all agents, and the mixer of QMIX."""

    values: MLP
    mixer: tuple[Encoder, MonotoneMixer] | None
    team_value = qmix.Nets.team_value

    def q(self, team: TeamObs, rows: Record) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Return every agent's Q of all actions, before and after each row's step."""
        obs, after = team.own(rows.obs), team.own(rows.next_obs)
        own = dataclasses.replace(rows, obs=obs, next_obs=after)
        found = self.values(r2d2.unroll_memory(self, own, 0))
        return found[:-1], found[1:]


def needs(config: Config) -> Needs:
    """Ask for sequences of a replay, and for the memories before each."""
    feed = Feed(batch=config.batch, updates=config.learn, length=config.length)
    return Needs(config.collect, (feed,), config.capacity, config.warmup, ("begins", "memory"))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> qmix.State:
    """Create the mixer of QMIX, and agents with a memory."""
    state = qmix.init(key, spec, config)
    core = RecurrentCore.parts(key, state.team.own_spec(spec), config.width)
    sizes = (config.width, state.net.actions.outputs)
    values = MLP.uniform(random_keys.fold(key, "values"), sizes)
    net = Nets(*core, values, state.net.mixer)
    copy = jax.tree.map(jnp.copy, net)
    return dataclasses.replace(state, net=net, target=copy, optimiser=adam().init(net))


def memory(state: qmix.State, envs: int, key: Key[Array, ""]) -> Float[Array, "env agent numbers"]:
    """Return an empty memory of every agent."""
    return jnp.zeros((envs, len(state.team.agents), state.net.memory.size))


def recall(
    state: qmix.State, past: Past, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, Float[Array, "env agent numbers"], dict[str, Array]]:
    """Return every agent's best action, with ``explore`` and probability epsilon a random one, and
    what it remembers."""
    own = state.team.own(obs)
    hidden, features = state.net.remember(past, own)
    action, extras = dqn.act_by_values(state, state.net.values(features), own, key, explore)
    return action, hidden, extras


def learn(state: qmix.State, batch: Record, key: Key[Array, ""]) -> tuple[qmix.State, Signals]:
    """Make one update on sequences ``(batch, time, ...)``."""
    return qmix.learn(state, time_major(batch), key)

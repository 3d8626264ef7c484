"""Extreme Q-learning, offline (Garg 2023, arXiv:2301.02328), for boxes and for one choice.

    value     L_V  = E[ e^z - z - 1 ],       z = u / T,       u = min_i Q'_i(s, a) - V(s)
    critics   L_Q  = 1/2 sum_i E[ w (Q_i(s, a) - r - g V(s'))^2 ]
    policy    L_pi = -E[ min(e^(beta u), 100) log pi(a|s) ]

All a are the log's: no other action is ever valued. V is the soft maximum T log E[e^(Q / T)] over
the actions that the log has in s, the optimal value of a problem that pays T times the divergence
from the log's policy. g is gamma times the world's discount; Q' follows Q by ``tau`` per update;
w is 1, or an importance weight of the source. L_V is divided by the largest e^z of each batch
(equations/dual.py). With ``scale_reward`` rewards are scaled by 1000 / (largest - smallest return
of the log); with ``anneal`` the policy's step size falls along a cosine, both as in IQL.

Everything but L_V is IQL's (``iql.py``), and called from there.

Deviations from the authors' code: an exponential beyond ``clip`` continues along its tangent
instead of losing its gradient; the critics' loss is the square (there Huber's, linear beyond 20);
the policy's weights come from V before its step (there after it); networks begin as SAC's. Pictures
are encoded by one torso, which only the critics' loss trains.
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import equinox as eqx
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling.algorithms.offline import iql
from sterling.equations.average import masked_mean
from sterling.equations.dual import gumbel_loss, gumbel_scale
from sterling.field_types import Count, Depth, Limit, NotNegative, Positive, Share, Whole
from sterling.nets.ensemble import Twins
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.policy import Policy
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of the authors' code (github.com/Div99/XQL) for D4RL's MuJoCo worlds, but
    for ``scale_reward``, which is on there (T is then in units of a thousandth of the log's range),
    and for the batch: 1024 there with T = 1, and 256 with T = 2."""

    lr: NotNegative = 3e-4  # Adam's step size, for value, critics and policy
    gamma: Share = 0.99  # discount per step
    temperature: Positive = 1.0  # T, in units of the return; towards 0 V is the largest Q
    clip: Limit = 7.0  # z beyond which the exponential continues as a line
    beta: NotNegative = 3.0  # inverse temperature of the policy's weights (antmaze 10, adroit 0.5)
    tau: Share = 0.005  # share of the way that target critics move per update
    most: Limit = 100.0  # bound of the policy's weights
    anneal: bool = True  # the policy's step size falls to 0 along a cosine
    scale_reward: bool = False  # by 1000 / (range of the log's returns)
    normalise_obs: bool = False  # centre and scale observations by the log's moments
    layer_norm: bool = True  # normalise the hidden layers of V
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration, once it acts
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed, once it acts
    warmup: Whole = 0  # steps before the first update, once it acts
    width: Count = 256  # units per hidden layer
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class State(eqx.Module):
    """Everything that changes."""

    policy: Policy
    value: MLP
    critics: Twins
    target: Twins
    optimisers: tuple[optax.OptState, optax.OptState, optax.OptState]  # value, critics, policy
    normaliser: ObsNormaliser
    reward_scale: Float[Array, ""]
    updates: Int[Array, ""]
    planned: Int[Array, ""]  # updates that the cosine runs over
    config: Config


def needs(config: Config) -> Transitions:
    """Uniform samples."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for several choices at once."""
    return State(*iql.parts("xql", key, spec, config))


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of the policy, or its mode."""
    return iql.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "..."]:
    """log pi(a|s)."""
    return iql.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """V(s), of scaled rewards."""
    return iql.value(state, obs)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """The smaller critic's value of actions, of scaled rewards."""
    return iql.action_value(state, obs, action)


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of value, policy, critics and targets on transitions ``(batch, ...)``."""
    temperature, clip = state.config.temperature, state.config.clip

    def loss(error: Float[Array, "batch"], mask: Bool[Array, "batch"]) -> Float[Array, ""]:
        scale = gumbel_scale(error, mask, temperature, clip)
        return scale * masked_mean(gumbel_loss(error, temperature, clip), mask)

    return iql.learn_by(loss, state, batch)

"""Extreme Q-learning, offline (Garg 2023, arXiv:2301.02328), for Box and Discrete actions.

    value     L_V  = E[ e^z - z - 1 ],       z = u / T,       u = min_i Q'_i(s, a) - V(s)
    critics   L_Q  = 1/2 sum_i E[ w (Q_i(s, a) - r - g V(s'))^2 ]
    policy    L_pi = -E[ min(e^(beta u), 100) log pi(a|s) ]

All actions are logged ones: no other action is ever evaluated. V is the soft maximum
T log E[e^(Q / T)] over the logged actions in s, the optimal value if the reward is reduced by T
times the divergence from the behaviour policy. g is gamma times the environment's discount; Q'
follows Q at rate ``tau`` per update; w is 1, or the source's importance weight. L_V is divided by
the largest e^z of each batch (equations/dual_values.py).

Everything except L_V is IQL's (``iql.py``), and called from there, with the same ``scale_reward``,
``anneal`` and initial networks.

Deviations from the authors' code: an exponential beyond ``clip`` continues along its tangent
instead of losing its gradient; the critics' loss is the square (there Huber's, linear beyond 20);
the policy's weights use V before its update (there after it). Images are encoded by one torso,
which only the critics' loss trains.
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

from jaxtyping import Array, Bool, Float, Key

from sterling.algorithms.offline import iql
from sterling.equations.dual_values import gumbel_loss, gumbel_scale
from sterling.equations.masked_average import masked_mean
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Limit,
    NotNegative,
    Positive,
    Share,
    Sizes,
    Whole,
)
from sterling.types import Action, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are those of the authors' code (github.com/Div99/XQL) for D4RL's MuJoCo tasks, with
    two exceptions: ``scale_reward`` is on there (T is then in thousandths of the dataset's range of
    returns), and the batch is 1024 there with T = 1, and 256 with T = 2."""

    lr: NotNegative = 3e-4  # Adam's step size, for value, critics and policy
    gamma: Share = 0.99  # discount per step
    temperature: Positive = 1.0  # T, in units of the return; as T -> 0, V approaches the largest Q
    clip: Limit = 7.0  # z beyond which the exponential continues linearly
    beta: NotNegative = 3.0  # inverse temperature of the advantage weights (antmaze 10, adroit 0.5)
    tau: Share = 0.005  # rate at which target critics follow, per update
    most: Limit = 100.0  # upper bound of the advantage weights
    anneal: bool = True  # the policy's step size falls to 0 along a cosine
    scale_reward: bool = False  # scale rewards by 1000 / (range of the dataset's returns)
    normalise_obs: bool = False  # normalise observations by the dataset's mean and deviation
    layer_norm: bool = True  # normalise the hidden layers of V
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration of the online phase
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed (online phase)
    warmup: Whole = 0  # steps before the first update of the online phase
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu


class State(iql.State):
    """Everything that changes during training: IQL's fields."""


def needs(config: Config) -> Transitions:
    """Ask for single transitions, drawn uniformly."""
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are neither a Box nor Discrete."""
    return iql.create_state(State, "xql", key, spec, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return iql.act(state, obs, key, explore)


log_prob, value, action_value = iql.log_prob, iql.value, iql.action_value


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update value, policy, critics and targets once on transitions ``(batch, ...)``."""
    temperature, clip = state.config.temperature, state.config.clip

    def loss(error: Float[Array, "batch"], mask: Bool[Array, "batch"]) -> Float[Array, ""]:
        scale = gumbel_scale(error, mask, temperature, clip)
        return scale * masked_mean(gumbel_loss(error, temperature, clip), mask)

    return iql.learn_with_value_loss(loss, state, batch)

"""f-DVL: dual value learning with an f-divergence (Sikchi 2024, "Dual RL", arXiv:2302.08560).

    value     L_V  = E[ (1 - lambda) V(s) + lambda f*(u) ],       u = min_i Q'_i(s, a) - V(s)
    critics   L_Q  = 1/2 sum_i E[ w (Q_i(s, a) - r - g V(s'))^2 ]
    policy    L_pi = -E[ min(e^(beta u), 100) log pi(a|s) ]

    total variation   f*(u) = max(u, 0)
    chi-square        f*(u) = max(u, 0) + max(u, 0)^2 / 4

All actions are logged ones: no other action is ever evaluated. The paper shows that XQL is the same
dual with the reverse KL divergence, whose f* is an exponential, which makes it unstable; these two
grow like u and u^2. V rises with lambda towards the largest Q of the logged actions in s
(equations/dual_values.py). g is gamma times the environment's discount; Q' follows Q at rate
``tau`` per update; w is 1, or the source's importance weight.

Everything except L_V is IQL's (``iql.py``), and called from there, with the same ``scale_reward``,
``anneal`` and initial networks.

Deviations from the authors' code: chi-square's f* is 0 for every u < 0, as in the paper (there it
grows again below -4); the critics' loss is the square (there Huber's, linear beyond 20); the
policy's weights use V before its update (there after it).
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

from jaxtyping import Array, Bool, Float, Key

from sterling.algorithms.offline import iql
from sterling.equations.dual_values import dual_loss
from sterling.equations.masked_average import masked_mean
from sterling.field_types import (
    Activation,
    Count,
    Depth,
    Inside,
    Limit,
    NotNegative,
    Share,
    Sizes,
    Whole,
)
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config

DIVERGENCES = ("total_variation", "chi_square")


@config
class Config:
    """Defaults are those of the AntMaze example in the authors' code (github.com/hari-sikchi/DVL),
    with three exceptions: ``beta`` is 10 there, ``anneal`` off and ``batch`` 1024; here they are
    IQL's for locomotion. There is no dropout of V: the code names one of 0.5 but never uses it."""

    lr: NotNegative = 3e-4  # Adam's step size, for value, critics and policy
    gamma: Share = 0.99  # discount per step
    divergence: str = "total_variation"  # total_variation or chi_square
    weight: Inside = 0.8  # lambda, from 1/2 (chi_square: 0) to 1; at 1, V is the largest Q
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
    """Ask for single transitions, drawn uniformly. Raises :class:`Mistake` for an unknown
    divergence, and for a weight at which total variation's loss has no minimum."""
    if config.divergence not in DIVERGENCES:
        known = " or ".join(DIVERGENCES)
        raise Mistake(f"Unknown divergence {config.divergence!r} for fdvl. Use {known}.")
    if config.divergence == "total_variation" and config.weight <= 0.5:
        raise Mistake(
            f"fdvl needs weight > 0.5 with total_variation, not {config.weight:g}: V would fall "
            "without bound."
        )
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` for actions that are neither a Box nor Discrete."""
    return iql.create_state(State, "fdvl", key, spec, config)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``."""
    return iql.act(state, obs, key, explore)


log_prob, value, action_value = iql.log_prob, iql.value, iql.action_value


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update value, policy, critics and targets once on transitions ``(batch, ...)``."""
    config = state.config

    def loss(error: Float[Array, "batch"], mask: Bool[Array, "batch"]) -> Float[Array, ""]:
        return masked_mean(dual_loss(error, config.weight, config.divergence), mask)

    return iql.learn_with_value_loss(loss, state, batch)

"""f-DVL: values as duals of an f-divergence (Sikchi 2024, "Dual RL", arXiv:2302.08560).

    value     L_V  = E[ (1 - lambda) V(s) + lambda f*(u) ],       u = min_i Q'_i(s, a) - V(s)
    critics   L_Q  = 1/2 sum_i E[ w (Q_i(s, a) - r - g V(s'))^2 ]
    policy    L_pi = -E[ min(e^(beta u), 100) log pi(a|s) ]

    total variation   f*(u) = max(u, 0)
    chi-square        f*(u) = max(u, 0) + max(u, 0)^2 / 4

All a are the log's: no other action is ever valued. The paper shows that XQL is the same dual with
the reverse KL divergence, whose f* is an exponential and the cause of its instability; these two
grow as u and as u^2. V rises with lambda towards the largest Q that the log has in s
(equations/dual.py). g is gamma times the world's discount; Q' follows Q by ``tau`` per update; w
is 1, or an importance weight of the source.

Everything but L_V is IQL's (``iql.py``), and called from there; what that file says of
``scale_reward``, ``anneal`` and how networks begin holds here.

Deviations from the authors' code: chi-square's f* is 0 for every u < 0, as in the paper (there it
grows again below -4); the critics' loss is the square (there Huber's, linear beyond 20); the
policy's weights come from V before its step (there after it).
Evidence: benchmarks/results/offline.md.
"""

from __future__ import annotations

import equinox as eqx
import optax
from jaxtyping import Array, Bool, Float, Int, Key

from sterling.algorithms.offline import iql
from sterling.equations.average import masked_mean
from sterling.equations.dual import dual_loss
from sterling.field_types import Count, Depth, Inside, Limit, NotNegative, Share, Whole
from sterling.nets.ensemble import Twins
from sterling.nets.mlp import MLP
from sterling.nets.normalise import ObsNormaliser
from sterling.nets.policy import Policy
from sterling.types import Action, Mistake, Obs, Record, Signals, Spec, Transitions, config

DIVERGENCES = ("total_variation", "chi_square")


@config
class Config:
    """Defaults are those of the authors' code (github.com/hari-sikchi/DVL), its AntMaze example,
    but for these: there ``beta`` is 10, ``anneal`` off and ``batch`` 1024, here as in IQL for
    locomotion. A dropout of 0.5 that it names for V is left out; its code never turns it on."""

    lr: NotNegative = 3e-4  # Adam's step size, for value, critics and policy
    gamma: Share = 0.99  # discount per step
    divergence: str = "total_variation"  # or "chi_square"
    weight: Inside = 0.8  # lambda, from 1/2 (chi_square: 0) to 1: towards 1 V is the largest Q
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
    """Uniform samples. Raises :class:`Mistake` for an unknown divergence, and for a weight at
    which total variation's loss has no minimum."""
    if config.divergence not in DIVERGENCES:
        known = " or ".join(DIVERGENCES)
        raise Mistake(f"divergence {config.divergence!r} is not known to fdvl; use {known}")
    if config.divergence == "total_variation" and config.weight <= 0.5:
        raise Mistake(f"fdvl's weight must be above 1/2: with {config.weight:g} V falls for ever")
    return Transitions(config.batch, config.collect, config.learn, config.capacity, config.warmup)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` for several choices at once."""
    return State(*iql.parts("fdvl", key, spec, config))


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
    config = state.config

    def loss(error: Float[Array, "batch"], mask: Bool[Array, "batch"]) -> Float[Array, ""]:
        return masked_mean(dual_loss(error, config.weight, config.divergence), mask)

    return iql.learn_by(loss, state, batch)

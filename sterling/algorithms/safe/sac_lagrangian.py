"""SAC with a limit on an episode's expected cost (Ha 2020, arXiv:2002.08550; Ray 2019,
"Benchmarking safe exploration").

    problem      max E[return] + alpha H   subject to   E[cost of an episode] <= d
    multiplier   m <- max(0, m + eta (C - d)),   C the mean cost of the episodes that just finished
    costs        y_c = c + g V_c'(s'),   V_c(s) = E_a[ max_i C_i(s, a) ],   L_C as L_Q
    actor        V(s) = E_a[ (min_i Q_i(s, a) - m max_i C_i(s, a)) / (1 + m) - alpha log pi(a|s) ]

Critics Q, temperature and everything else are those of sac.py. The cost is a channel of the
environment (``Spec.channels``), one number per step, whose sum over an episode is limited; it is
stored in the replay buffer. Critics learn from replayed steps; the multiplier learns only from
fresh ones, because an old policy's episodes do not show what the current policy costs.

Deviations from the papers: two cost critics, of which the larger counts, as the smaller of Q does;
the actor's objective is divided by 1 + m, so that a large multiplier neither enlarges its steps nor
outweighs the entropy; the multiplier makes plain ascent steps, as in ppo_lagrangian.py. The limit
is on undiscounted costs, but critics learn discounted ones. The stochastic policy meets the limit;
its mode may cost more. Evidence: benchmarks/results/constraint.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.algorithms.online import sac
from sterling.algorithms.safe import ppo_lagrangian
from sterling.equations.polyak import polyak
from sterling.field_types import Activation, Count, Depth, Finite, NotNegative, Share, Sizes, Whole
from sterling.needs.feed import FRESH
from sterling.nets.optimiser import adam, descend
from sterling.nets.q_ensemble import TwinCritics
from sterling.types import Action, Feed, Needs, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are sac's; limit and channel are those of Ray 2019."""

    cost: str = "cost"  # the limited channel
    cost_limit: Finite = 25.0  # d: largest mean cost of an episode
    multiplier_lr: NotNegative = 0.005  # eta: the multiplier's step size
    lr: NotNegative = 3e-4  # Adam's step size, for critics, actor and temperature
    gamma: Share = 0.99  # discount per step, of rewards and costs
    tau: Share = 0.005  # rate at which target critics follow, per update
    alpha: NotNegative = 1.0  # initial temperature; constant without tune_alpha
    tune_alpha: bool = True  # tune alpha so that the policy's entropy stays at target_entropy
    target_entropy: Finite | None = None  # nats; None: -dim(A), or 0.98 of the maximum (discrete)
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # replay capacity in transitions, per seed
    warmup: Whole = 10_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards and costs summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of the importance weights of prioritised replay (constant)
    width: Sizes = 256  # units per hidden layer, or of each layer such as 400,300
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)
    activation: Activation = "relu"  # tanh, relu, silu, elu or gelu
    layer_norm: bool = False  # normalise the critics' hidden layers


class State(sac.State):
    """Everything that changes during training. Cost critics learn minus the cost like a reward, so
    the smaller of them is the more pessimistic one."""

    config: Any  # this file's Config instead of sac's
    costs: TwinCritics
    costs_target: TwinCritics
    costs_optimiser: optax.OptState
    multiplier: Float[Array, ""]  # m


class PenalisedCritics(TwinCritics):
    """The actor's objective as critics: Q of rewards minus the multiplier times Q of costs."""

    costs: TwinCritics
    multiplier: Float[Array, ""]

    def q_values(
        self, obs: Obs, action: Float[Array, "... inputs"]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Return both penalised values of continuous actions."""
        cost = jnp.minimum(*self.costs.q_values(obs, action))
        first, second = super().q_values(obs, action)
        return self._penalised(first, cost), self._penalised(second, cost)

    def all_q_values(
        self, obs: Obs
    ) -> tuple[Float[Array, "... outputs"], Float[Array, "... outputs"]]:
        """Return both penalised values of every discrete action."""
        cost = jnp.minimum(*self.costs.all_q_values(obs))
        first, second = super().all_q_values(obs)
        return self._penalised(first, cost), self._penalised(second, cost)

    def _penalised(self, q: Float[Array, "..."], cost: Float[Array, "..."]) -> Float[Array, "..."]:
        """Return (q + m cost) / (1 + m); critics of costs predict minus the cost."""
        return (q + self.multiplier * cost) / (1.0 + self.multiplier)


def needs(config: Config) -> Needs:
    """Ask for fresh steps for the multiplier, and replayed transitions for everything else."""
    replayed = Transitions.of_config(config)
    feeds = (Feed(FRESH, "constraint"), *replayed.feeds)
    return Needs(config.collect, feeds, config.capacity, config.warmup, (config.cost,))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create an agent. Raises :class:`Mistake` as sac does, and if the channel does not exist."""
    ppo_lagrangian.check_cost_channel(spec, config.cost)
    fields: Any = sac.Config
    shared = {each.name: getattr(config, each.name) for each in dataclasses.fields(fields)}
    created = sac.init(key, spec, sac.Config(**shared))
    costs = sac.init(random_keys.fold(key, "cost"), spec, sac.Config(**shared)).critics
    return State(
        **(vars(created) | {"config": config}),
        costs=costs,
        costs_target=jax.tree.map(jnp.copy, costs),
        costs_optimiser=adam().init(costs),
        multiplier=jnp.zeros(()),
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of the policy, or its mode without ``explore``; boxes in their own shape."""
    return sac.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return sac.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Return the value of rewards only, as sac does."""
    return sac.value(state, obs)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Return min_i Q_i(s, a) of rewards only."""
    return sac.action_value(state, obs, action)


def learn_constraint(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update the multiplier by the episodes that ended in fresh rows ``(time, env, ...)``."""
    multiplier = ppo_lagrangian.updated_multiplier(state, batch)
    learned = dataclasses.replace(state, multiplier=multiplier)
    return learned, Signals({"multiplier": multiplier})


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Update all networks and the temperature once on transitions ``(batch, ...)``."""
    config = state.config
    costs_as_rewards = dataclasses.replace(batch, reward=-batch.extras[config.cost])
    cost_state = dataclasses.replace(
        state, target=state.costs_target, log_alpha=jnp.full_like(state.log_alpha, -jnp.inf)
    )  # so that the target has no entropy
    y = sac.target(cost_state, costs_as_rewards, random_keys.fold(key, "cost"))
    cost_grad = jax.grad(sac.critic_loss, has_aux=True)
    grads, (metrics, _) = cost_grad(state.costs, costs_as_rewards, y)
    direction, optimiser = adam().update(grads, state.costs_optimiser)
    costs = descend(state.costs, direction, config.lr)

    def penalise(critics: TwinCritics) -> TwinCritics:
        parts = (critics.torso, critics.first, critics.second, critics.choices)
        return PenalisedCritics(*parts, costs, state.multiplier)

    learned, signals = sac.learn(state, batch, key, penalise)
    target = polyak(state.costs_target, costs, config.tau)
    changed = {"costs": costs, "costs_target": target, "costs_optimiser": optimiser}
    cost_metrics = {"loss/cost": metrics["loss/value"], "value/cost": -metrics["value/q"]}
    signals = Signals(signals.metrics | cost_metrics, signals.samples)
    return dataclasses.replace(learned, **changed), signals

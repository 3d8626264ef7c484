"""SAC under a limit on what an episode costs (Ha 2020, arXiv:2002.08550; Ray 2019, "Benchmarking
safe exploration").

    problem      max E[return] + alpha H   subject to   E[cost of an episode] <= d
    multiplier   m <- max(0, m + eta (C - d)),   C the mean cost of the episodes that just finished
    costs        y_c = c + g V_c'(s'),   V_c(s) = E_a[ max_i C_i(s, a) ],   L_C as L_Q
    actor        V(s) = E_a[ (min_i Q_i(s, a) - m max_i C_i(s, a)) / (1 + m) - alpha log pi(a|s) ]

Critics Q, temperature and everything else are those of sac.py. The cost is a channel of the
environment (``Spec.channels``), one number for each step, whose sum over an episode is limited; it
is kept in the replay. Critics learn from replayed steps, whoever took them; the multiplier learns
from fresh ones alone, because an old policy's episodes say nothing of what this one costs.

Deviations from the papers: two cost critics, of which the larger one counts, as the smaller one of
Q does; what the actor climbs is divided by 1 + m, so that a large multiplier does not make its
steps larger or drown the entropy; the multiplier ascends by plain steps, as in ppo_lagrangian.py.
Costs are discounted where they are learned from and not where they are limited. The limit is met by
the policy as it samples; its mode may cost more. Evidence: benchmarks/results/constraint.md.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Key

from sterling import keys
from sterling.algorithms.online import ppo_lagrangian, sac
from sterling.equations.polyak import polyak
from sterling.field_types import Count, Depth, Finite, NotNegative, Share, Whole
from sterling.needs import FRESH
from sterling.nets.ensemble import Twins
from sterling.nets.optimiser import adam, descend
from sterling.types import Action, Feed, Needs, Obs, Record, Signals, Spec, Transitions, config


@config
class Config:
    """Defaults are sac's, the limit and the channel those of Ray 2019."""

    cost: str = "cost"  # the channel that is limited
    cost_limit: Finite = 25.0  # d: what an episode may cost on average
    multiplier_lr: NotNegative = 0.005  # eta: how fast the multiplier ascends
    lr: NotNegative = 3e-4  # Adam's step size, for critics, actor and temperature
    gamma: Share = 0.99  # discount per step, of rewards and costs
    tau: Share = 0.005  # share of the way that target critics move per update
    alpha: NotNegative = 1.0  # temperature at the start, or for good without tune_alpha
    tune_alpha: bool = True  # hold the policy's entropy at target_entropy
    target_entropy: Finite | None = None  # nats; None: as sac's
    batch: Count = 256  # transitions per update
    collect: Count = 1  # steps of each env per iteration
    learn: Count = 1  # updates per iteration
    capacity: Count = 1_000_000  # transitions kept, over all envs of a seed
    warmup: Whole = 10_000  # steps with random actions before the first update
    n_step: Count = 1  # rewards, and costs, summed before bootstrapping
    priority: NotNegative | None = None  # exponent of prioritised replay (0.6); None: uniform
    correction: Share = 0.4  # exponent of its importance weights, constant
    width: Count = 256  # units per hidden layer
    depth: Depth = 2  # hidden layers, for vectors (after convolutions: one)


class State(sac.State):
    """Everything that changes. Cost critics learn minus the cost, as if it were a reward: the
    smaller of them then is the one that fears more."""

    config: Any  # a Config of these, where sac's own is one of sac's
    costs: Twins
    costs_target: Twins
    costs_optimiser: optax.OptState
    multiplier: Float[Array, ""]  # m


class Judged(Twins):
    """What the actor climbs: critics of rewards, and beside them ``costs`` by the multiplier."""

    costs: Twins
    multiplier: Float[Array, ""]

    def of_action(
        self, obs: Obs, action: Float[Array, "... inputs"]
    ) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        """Of continuous actions."""
        spent = jnp.minimum(*self.costs.of_action(obs, action))
        first, second = super().of_action(obs, action)
        return self._joined(first, spent), self._joined(second, spent)

    def of_choices(
        self, obs: Obs
    ) -> tuple[Float[Array, "... outputs"], Float[Array, "... outputs"]]:
        """Of every discrete action."""
        spent = jnp.minimum(*self.costs.of_choices(obs))
        first, second = super().of_choices(obs)
        return self._joined(first, spent), self._joined(second, spent)

    def _joined(self, q: Float[Array, "..."], spent: Float[Array, "..."]) -> Float[Array, "..."]:
        return (q + self.multiplier * spent) / (1.0 + self.multiplier)


def needs(config: Config) -> Needs:
    """Fresh steps for the multiplier; uniform or prioritised replay for the rest."""
    replayed = Transitions.of_config(config)
    feeds = (Feed(FRESH, "constraint"), *replayed.feeds)
    return Needs(config.collect, feeds, config.capacity, config.warmup, (config.cost,))


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent; raises :class:`Mistake` as sac does, and where there is no such channel."""
    ppo_lagrangian.check_channel(spec, config.cost)
    fields: Any = sac.Config
    shared = {each.name: getattr(config, each.name) for each in dataclasses.fields(fields)}
    begun = sac.init(key, spec, sac.Config(**shared))
    others = sac.init(keys.fold(key, "cost"), spec, sac.Config(**shared)).critics
    own = {name: getattr(begun, name) for name in ("actor", "critics", "target", "log_alpha")}
    return State(
        **own,
        optimisers=begun.optimisers,
        config=config,
        costs=others,
        costs_target=jax.tree.map(jnp.copy, others),
        costs_optimiser=adam().init(others),
        multiplier=jnp.zeros(()),
    )


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of the policy, or its mode; continuous actions in the space's own shape."""
    return sac.act(state, obs, key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """log pi(a|s) of actions as ``act`` gives them."""
    return sac.log_prob(state, obs, action)


def value(state: State, obs: Obs) -> Float[Array, "env"]:
    """Of rewards alone, as sac's: of the policy's mode, or where actions are discrete of it all."""
    return sac.value(state, obs)


def action_value(state: State, obs: Obs, action: Action) -> Float[Array, "env"]:
    """Of rewards alone: the smaller critic's value of actions."""
    return sac.action_value(state, obs, action)


def learn_constraint(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Move the multiplier by the episodes that finished in fresh rows ``(time, env, ...)``."""
    multiplier = ppo_lagrangian.ascended(state, batch)
    learned = dataclasses.replace(state, multiplier=multiplier)
    return learned, Signals({"multiplier": multiplier})


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """One update of all networks and the temperature on transitions ``(batch, ...)``."""
    config = state.config
    spent = dataclasses.replace(batch, reward=-batch.extras[config.cost])
    bare = dataclasses.replace(
        state, target=state.costs_target, log_alpha=jnp.full_like(state.log_alpha, -jnp.inf)
    )  # without an entropy in the target
    y = sac.target(bare, spent, keys.fold(key, "cost"))
    grads, (metrics, _) = jax.grad(sac.critic_loss, has_aux=True)(state.costs, spent, y)
    direction, optimiser = adam().update(grads, state.costs_optimiser)
    costs = descend(state.costs, direction, config.lr)

    def judge(critics: Twins) -> Twins:
        parts = (critics.torso, critics.first, critics.second)
        return Judged(*parts, costs, state.multiplier)

    learned, signals = sac.learn(state, batch, key, judge)
    slow = polyak(state.costs_target, costs, config.tau)
    own = {"costs": costs, "costs_target": slow, "costs_optimiser": optimiser}
    found = {"loss/cost": metrics["loss/value"], "value/cost": -metrics["value/q"]}
    return dataclasses.replace(learned, **own), Signals(signals.metrics | found, signals.samples)

"""Independent PPO: agents share one network, and each learns as if it were alone (de Witt 2020).

"Is independent learning all you need in the StarCraft multi-agent challenge?", arXiv:2011.09533.

    policy      pi(a_i | o_i, i),  one for all agents; i one-hot where ``identity`` says so
    value       V(o_i, i)
    loss        PPO's (ppo.py) over the rows of all agents, advantages by each agent's own rewards

Each agent of each environment is treated as an environment of its own, and PPO learns from those.
Rewards are the agent's own, or with ``reward="team"`` the sum over all agents. An agent that leaves
(``alive`` in the observation) has terminated: its last discount is 0, and later rows are ignored.
One that is cut off while others go on (``truncated``) leaves too, but its last discount is 1: it
bootstraps from its last observation.
Deviations from the paper: those of ppo.py; networks see only the current observation.
Evidence: benchmarks/results/agents.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling.algorithms.online import ppo
from sterling.field_types import OneOf
from sterling.problem.agent_axis import REWARD
from sterling.problem.team_obs import TeamObs
from sterling.types import Action, Obs, Record, Rollouts, Signals, Spec, config

several_agents = True  # for environments with several agents


@config
class Config(ppo.Config):
    """Defaults are ppo's."""

    identity: bool = True  # add the agent's one-hot index to its observation
    reward: Annotated[str, OneOf(("own", "team"))] = "own"  # the agent's own, or the team's sum


class State(ppo.State):
    """Everything that changes during training."""

    team: TeamObs = eqx.field(static=True)


def needs(config: Config) -> Rollouts:
    """Ask for fresh rollouts of ``length`` steps of each env."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """Create the learner that all agents share."""
    team = TeamObs.from_spec(spec, "ippo", "ppo", config.identity)
    return State(**vars(ppo.init(key, team.own_spec(spec), config)), team=team)


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """Return a sample of every agent's policy, or its mode without ``explore``."""
    return ppo.act(state, state.team.own(obs), key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env agent"]:
    """Return log pi(a|s) of actions in the form that ``act`` returns."""
    return ppo.log_prob(state, state.team.own(obs), action)


def value(state: State, obs: Obs) -> Float[Array, "env agent"]:
    """Return the critic's estimate of each agent's return, in units of normalised rewards."""
    return ppo.value(state, state.team.own(obs))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """Make PPO's updates on one rollout ``(time, env, agent, ...)``."""
    return learn_from_rows(state, batch, rows_per_agent(state, batch), key)


def learn_from_rows(
    state: Any, batch: Record, rows: Record, key: Key[Array, ""]
) -> tuple[Any, Signals]:
    """Make PPO's updates on a rollout, given its ``rows`` from :func:`rows_per_agent`; ``state``
    may be any object with the fields of ``State``."""
    learned, signals = ppo.learn(state, rows, key)
    shape = (*batch.mask.shape, len(state.team.agents))
    advantage, counts = (x.reshape(shape) for x in (signals.samples["advantage"], rows.mask))
    present = jnp.maximum(counts.sum(-1).astype(jnp.float32), 1.0)
    samples = {"advantage": jnp.where(counts, advantage, 0.0).sum(-1) / present}
    return dataclasses.replace(state, **vars(learned)), Signals(signals.metrics, samples)


def rows_per_agent(
    state: Any, batch: Record, observe: Callable[[Any, Obs], Obs] | None = None
) -> Record:
    """Return the rollout as PPO's input, with each agent of each environment as an environment of
    its own; ``observe(state, obs)`` gives the networks' input (None: what each agent sees)."""
    team = state.team
    observe = observe or (lambda state, obs: state.team.own(obs))
    count = len(team.agents)

    def each(x: Array) -> Array:
        return jnp.broadcast_to(x[..., None], (*x.shape, count))

    alive, next_alive = team.alive(batch.obs), team.alive(batch.next_obs)
    discount = each(batch.discount) * next_alive.astype(jnp.float32)
    own = batch.extras[REWARD]
    rows = Record(
        observe(state, batch.obs),
        batch.action,
        own if state.config.reward == "own" else each(batch.reward),
        jnp.where(team.cut_off(batch.next_obs), 1.0, discount),
        observe(state, batch.next_obs),
        each(batch.last) | ~next_alive,
        each(batch.mask) & alive,
        {"log_prob": batch.extras["log_prob"]},
    )
    return jax.tree.map(lambda x: x.reshape(x.shape[0], -1, *x.shape[3:]), rows)

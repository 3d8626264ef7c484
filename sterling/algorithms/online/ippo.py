"""Independent PPO: agents share one network, and each learns as if alone (de Witt 2020).

"Is independent learning all you need in the StarCraft multi-agent challenge?", arXiv:2011.09533.

    policy      pi(a_i | o_i, i),  one for all agents; i one-hot where ``identity`` says so
    value       V(o_i, i)
    loss        PPO's (ppo.py) over the rows of all agents, advantages by each agent's own rewards

An agent of an environment is taken for an environment of its own, and PPO learns from those.
Rewards are an agent's own, or with ``reward="team"`` the sum over all agents. An agent that leaves
(``alive`` in what is seen) has ended: its last discount is 0, and no row after it is learned from.
Deviations from the paper: those of ppo.py; networks see one observation and remember nothing.
Evidence: benchmarks/results/agents.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Annotated, Any

import equinox as eqx
import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Bool, Float, Key

from sterling.agents import ALIVE, REWARD, Agents
from sterling.algorithms.online import ppo
from sterling.field_types import OneOf
from sterling.nets.encoder import MASK, without_mask
from sterling.types import Action, Mistake, Obs, Record, Rollouts, Signals, Spec, config

several_agents = True  # this algorithm is for worlds of several


@config
class Config(ppo.Config):
    """Defaults are ppo's."""

    identity: bool = True  # networks see which agent it is that sees
    reward: Annotated[str, OneOf(("own", "team"))] = "own"  # what each agent learns from


class State(ppo.State):
    """Everything that changes."""

    agents: Agents = eqx.field(static=True)


def needs(config: Config) -> Rollouts:
    """Fresh trajectories."""
    return Rollouts(config.length)


def init(key: Key[Array, ""], spec: Spec, config: Config) -> State:
    """A new agent for all agents."""
    agents = agents_in(spec, "ippo")
    one = agents.of_each(spec)
    begun = ppo.init(key, dataclasses.replace(one, obs=seen_in(one.obs, agents, config)), config)
    return State(**vars(begun), agents=agents)


def agents_in(spec: Spec, name: str) -> Agents:
    """The agents of the problem; Mistake, which calls the algorithm ``name``, where it has one."""
    if spec.agents is None:
        raise Mistake(f"{name} is for environments of several agents, and this has one; use ppo")
    return spec.agents


def act(
    state: State, obs: Obs, key: Key[Array, ""], explore: bool
) -> tuple[Action, dict[str, Array]]:
    """A sample of every agent's policy, or its mode."""
    return ppo.act(state, seen(state, obs), key, explore)


def log_prob(state: State, obs: Obs, action: Action) -> Float[Array, "env agent"]:
    """log pi(a|s) of actions as ``act`` gives them."""
    return ppo.log_prob(state, seen(state, obs), action)


def value(state: State, obs: Obs) -> Float[Array, "env agent"]:
    """The critic's estimate of each agent's return, in the units that rewards are learned in."""
    return ppo.value(state, seen(state, obs))


def learn(state: State, batch: Record, key: Key[Array, ""]) -> tuple[State, Signals]:
    """PPO's learning from one rollout ``(time, env, agent, ...)``."""
    return learned_from(state, batch, alone(state, batch), key)


def learned_from(
    state: Any, batch: Record, rows: Record, key: Key[Array, ""]
) -> tuple[Any, Signals]:
    """PPO's learning from a rollout, given its ``rows`` as :func:`alone` makes them; of anything
    with the fields of ``State``."""
    learned, signals = ppo.learn(state, rows, key)
    shape = (*batch.mask.shape, len(state.agents))
    advantage, counts = (x.reshape(shape) for x in (signals.samples["advantage"], rows.mask))
    there = jnp.maximum(counts.sum(-1).astype(jnp.float32), 1.0)
    samples = {"advantage": jnp.where(counts, advantage, 0.0).sum(-1) / there}
    return dataclasses.replace(state, **vars(learned)), Signals(signals.metrics, samples)


def alone(state: Any, batch: Record, see: Callable[[Any, Obs], Obs] | None = None) -> Record:
    """The rollout as PPO takes it, each agent of each environment an environment of its own;
    ``see(state, obs)`` is what the networks see, ``(..., agent, ...)`` (None: :func:`seen`)."""
    see = see or seen
    count = len(state.agents)

    def each(x: Array) -> Array:
        return jnp.broadcast_to(x[..., None], (*x.shape, count))

    here, there = (alive(obs, each(batch.mask)) for obs in (batch.obs, batch.next_obs))
    own = batch.extras[REWARD]
    rows = Record(
        see(state, batch.obs),
        batch.action,
        own if state.config.reward == "own" else each(batch.reward),
        each(batch.discount) * there.astype(jnp.float32),
        see(state, batch.next_obs),
        each(batch.last) | ~there,
        each(batch.mask) & here,
        {"log_prob": batch.extras["log_prob"]},
    )
    return jax.tree.map(lambda x: x.reshape(x.shape[0], -1, *x.shape[3:]), rows)


def alive(obs: Any, like: Bool[Array, "... agent"]) -> Bool[Array, "... agent"]:
    """Which agents are there; all where observations do not say."""
    if isinstance(obs, dict) and ALIVE in obs:
        return obs[ALIVE].astype(bool)
    return jnp.ones_like(like)


def seen_in(one: spaces.Space[Any], agents: Agents, config: Config) -> spaces.Space[Any]:
    """The space of what the networks see of one agent."""
    if not config.identity:
        return one
    parts = dict(one.spaces) if isinstance(one, spaces.Dict) else {"observation": one}
    mask = {MASK: parts.pop(MASK)} if MASK in parts else {}
    identity = spaces.MultiBinary(len(agents))
    return spaces.Dict({"agent": identity, "observation": spaces.Dict(parts), **mask})


def seen(state: State, obs: Any) -> Any:
    """What the networks see, ``(..., agent, ...)``."""
    if isinstance(obs, dict):
        obs = {name: x for name, x in obs.items() if name != ALIVE}
    if not state.config.identity:
        return obs
    parts = without_mask(obs) if isinstance(obs, dict) else {"observation": obs}
    mask = {MASK: obs[MASK]} if isinstance(obs, dict) and MASK in obs else {}
    first, kind = jax.tree.leaves(parts)[0], state.nets.torso.kinds[1]  # after that of "agent"
    lead, count = first.shape[: first.ndim - len(kind.shape)], len(state.agents)
    identity = jnp.broadcast_to(jnp.eye(count, dtype=jnp.int8), (*lead, count))
    return {"agent": identity, "observation": parts, **mask}

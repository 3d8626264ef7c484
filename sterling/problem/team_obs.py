"""How observations of several agents are read: what each agent sees, and what a critic may see.

A :class:`TeamObs` is made of a problem once and kept in a State as a static field, so every
algorithm reads such observations in the same way, whatever networks it has.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Bool

from sterling.problem.action_choices import ACTION_MASK
from sterling.problem.agent_axis import ALIVE, STATUS, TRUNCATED, Agents
from sterling.problem.critic_only_obs import space_without, without_entries
from sterling.problem.picture_layout import all_leaf_spaces
from sterling.system.mistake import Mistake


@dataclasses.dataclass(frozen=True)
class TeamObs:
    """The form of several agents' observations. Axes before that of agents are the batch's."""

    agents: Agents
    axes: int  # those of the first leaf of one agent's observation
    unseen: tuple[str, ...]  # entries that only critics see
    identity: bool  # whether an agent's one-hot index is added to its observation

    @classmethod
    def from_spec(cls, spec: Any, name: str, instead: str, identity: bool = True) -> TeamObs:
        """Return the form of a problem's (:class:`sterling.types.Spec`) observations. Raise
        Mistake, which names the algorithm ``name`` and another one, if there is one agent only."""
        if spec.agents is None:
            said = f"{name} needs an environment with several agents; this has one."
            raise Mistake(f"{said} Use {instead}.")
        first = _leaf_spaces(spec.agents.single_agent_spec(spec).obs)[0]
        return cls(spec.agents, len(first.shape or ()), spec.unseen, identity)

    def own_spec(self, spec: Any) -> Any:
        """Return the problem of one agent, whose observations :meth:`own` returns."""
        one = self.agents.single_agent_spec(spec)
        if not self.identity:
            return one
        parts = (
            dict(one.obs.spaces) if isinstance(one.obs, spaces.Dict) else {"observation": one.obs}
        )
        mask = {ACTION_MASK: parts.pop(ACTION_MASK)} if ACTION_MASK in parts else {}
        index = spaces.MultiBinary(len(self.agents))
        seen = spaces.Dict({"agent": index, "observation": spaces.Dict(parts), **mask})
        return dataclasses.replace(one, obs=seen)

    def own(self, obs: Any) -> Any:
        """Return what each agent sees, ``(..., agent, ...)``: its observation and action mask, with
        its one-hot index if that is added."""
        seen = without_entries(obs, (*STATUS, *self.unseen))
        if not self.identity:
            return seen
        has_mask = isinstance(obs, dict) and ACTION_MASK in obs
        mask = {ACTION_MASK: obs[ACTION_MASK]} if has_mask else {}
        parts = self._parts(obs) if isinstance(obs, dict) else {"observation": obs}
        count = len(self.agents)
        index = jnp.broadcast_to(jnp.eye(count, dtype=jnp.int8), (*self.lead(obs), count))
        return {"agent": index, "observation": parts, **mask}

    def lead(self, obs: Any) -> tuple[int, ...]:
        """Return the sizes of the batch's axes and of the axis of agents."""
        first = jax.tree.leaves(self._parts(obs))[0]
        return tuple(first.shape[: first.ndim - self.axes])

    def alive(self, obs: Any) -> Bool[Array, "... agent"]:
        """Return which agents are in the episode; all if observations have no ``alive``."""
        return self._status(obs, ALIVE, True)

    def cut_off(self, obs: Any) -> Bool[Array, "... agent"]:
        """Return which agents the step before cut off while others go on; none if observations
        have no ``truncated``."""
        return self._status(obs, TRUNCATED, False)

    def central_spec(self, spec: Any) -> Any:
        """Return the problem whose observations :meth:`central_state` returns, as one agent's; they
        are encoded as usual, whatever encoder an agent's own observation has."""
        if self.unseen:
            whole = _leaf_spaces(spaces.Dict({name: spec.obs[name] for name in self.unseen}))
        else:
            whole = _leaf_spaces(self.agents.single_agent_spec(spec).obs) * len(self.agents)
        has_alive = isinstance(spec.obs, spaces.Dict) and ALIVE in spec.obs.spaces
        seen = spaces.Tuple([*whole, spec.obs[ALIVE]] if has_alive else whole)
        return dataclasses.replace(spec, obs=seen, agents=None, unseen=(), encoder=None)

    def central_state(self, obs: Any) -> tuple[Array, ...]:
        """Return what a central critic sees, leaves ``(..., *shape)`` without an axis of agents:
        the entries that only critics see; without any, all agents' observations, one agent after
        the other, 0 for those that are gone; and, if observations say it, which are ``alive``."""
        lead = self.lead(obs)
        if self.unseen:
            whole = jax.tree.leaves({name: obs[name] for name in self.unseen})
        else:
            alive, parts = self.alive(obs), jax.tree.leaves(self._parts(obs))
            each = [alive.reshape(*lead, *(1,) * (x.ndim - len(lead))) for x in parts]
            there = [jnp.where(is_in, x, 0) for is_in, x in zip(each, parts, strict=True)]
            whole = [
                jax.lax.index_in_dim(x, agent, len(lead) - 1, keepdims=False)
                for agent in range(len(self.agents))
                for x in there
            ]
        has_alive = isinstance(obs, dict) and ALIVE in obs
        return (*whole, obs[ALIVE]) if has_alive else tuple(whole)

    def _parts(self, obs: Any) -> Any:
        """Return the entries of which each agent has its own, without its action mask."""
        return without_entries(obs, (ACTION_MASK, *STATUS, *self.unseen))

    def _status(self, obs: Any, name: str, usual: bool) -> Bool[Array, "... agent"]:
        if isinstance(obs, dict) and name in obs:
            return obs[name].astype(bool)
        return jnp.full(self.lead(obs), usual)


def _leaf_spaces(space: spaces.Space[Any]) -> list[spaces.Space[Any]]:
    """Return the leaves of a space, in the order of ``jax.tree.leaves``, without action masks."""
    return all_leaf_spaces(space_without(space, (ACTION_MASK,)))

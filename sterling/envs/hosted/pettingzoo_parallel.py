"""PettingZoo environments of several agents, each as one Gymnasium environment of all its agents.

This file runs inside worker processes, so it imports nothing slow, and PettingZoo itself only to
make an AEC environment, in which agents move in turn, parallel.
"""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sterling.envs.hosted.shared_memory import (
    OBSERVATION,
    ContractViolation,
    arrange_leaves,
    read_numbers,
    space_leaves,
)
from sterling.problem.action_choices import ACTION_MASK, mask_size
from sterling.problem.agent_axis import STATUS, joint
from sterling.problem.critic_only_obs import STATE


def is_pettingzoo_env(env: Any) -> bool:
    """Whether ``env`` is a PettingZoo environment, AEC or parallel."""
    return hasattr(env, "possible_agents") and not isinstance(env, gymnasium.Env)


def join_agents(env: Any) -> JointEnv:
    """Return a PettingZoo environment as one environment of all its agents.

    Raises :class:`ContractViolation` if that is impossible. If it has an attribute ``unseen`` that
    is ``("state",)``, its state is observed as well, for critics only.
    """
    named = getattr(env, "unseen", ())
    if hasattr(env, "agent_iter"):
        if not env.metadata.get("is_parallelizable", False):
            raise ContractViolation(
                "its agents move in turn, and PettingZoo does not say that they could move at once "
                '(metadata["is_parallelizable"]). Use a parallel environment'
            )
        from pettingzoo.utils.conversions import aec_to_parallel

        env = aec_to_parallel(env)
    if named and tuple(named) != (STATE,):
        raise ContractViolation(
            f"its unseen is {named!r}. Make it ('state',): PettingZoo has nothing else for critics"
        )
    return JointEnv(env, bool(named))


class JointEnv(gymnasium.Env[Any, Any]):
    """All agents of a parallel environment as one environment.

    Spaces have an axis of agents, in the order of ``possible_agents``; the reward is a vector with
    one entry per agent.

    The observation is a dict: what the agents observe (``observation``, unless that is a dict
    itself), ``alive``, which agents are still there, and ``action_mask`` if agents are told their
    allowed actions, in their observation or in ``info``. For an agent that has left all else is 0,
    and its action is ignored. An agent that is truncated while others go on leaves, but is marked
    in ``truncated`` and observed once more. The episode ends when no agent is left. It is truncated
    if the last agents were truncated; their last observation has them alive.

    Shorter vectors are padded with zeros, and smaller numbers of choices with choices that
    ``action_mask`` forbids. Agents whose spaces differ in another way are refused.

    With ``stateful`` an entry ``state``, for critics only, holds the result of the environment's
    ``state()``.
    """

    def __init__(self, env: Any, stateful: bool = False):
        self.env, self.metadata = env, {**getattr(env, "metadata", {})}
        self.render_mode = getattr(env, "render_mode", None)
        self.names = tuple(str(name) for name in env.possible_agents)
        self._agents = list(env.possible_agents)
        observed = [env.observation_space(agent) for agent in self._agents]
        self._action_spaces = [env.action_space(agent) for agent in self._agents]
        agent_obs: Any = _common_space(observed, "observations")
        agent_actions = _common_space(self._action_spaces, "actions")
        if len(self.names) < 2 or not isinstance(agent_actions, spaces.Discrete | spaces.Box):
            said = f"it has {len(self.names)} agents with actions in {agent_actions}"
            raise ContractViolation(
                f"{said}. Two or more agents must each act in a Discrete or a Box"
            )
        self._wrap = not isinstance(agent_obs, spaces.Dict)
        parts = {OBSERVATION: agent_obs} if self._wrap else dict(agent_obs.spaces)
        _, infos = env.reset(seed=0)
        # the agents whose info has a mask; those of others allow all
        self._masked = {agent for agent in self._agents if ACTION_MASK in infos.get(agent, {})}
        self._choices = mask_size(agent_actions)
        if self._masked and not self._choices:
            raise ContractViolation(
                f"info has an {ACTION_MASK!r}, but actions are {agent_actions}, without a choice "
                "that a mask could forbid. Leave out the mask"
            )
        differ = any(mask_size(space) < self._choices for space in self._action_spaces)
        # whether a mask is added to the observation
        self._adds_mask = ACTION_MASK not in parts and (bool(self._masked) or differ)
        self._agent_space = spaces.Dict(parts)
        joint_parts = {name: joint(part, len(self.names)) for name, part in parts.items()}
        if self._adds_mask:
            joint_parts[ACTION_MASK] = spaces.MultiBinary((len(self.names), self._choices))
        joint_parts |= {name: spaces.MultiBinary(len(self.names)) for name in STATUS}
        self.unseen = (STATE,) if stateful else ()
        if stateful:
            joint_parts[STATE] = _state_space(env, joint_parts)
        self.observation_space = spaces.Dict(joint_parts)
        self.action_space = joint(agent_actions, len(self.names))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._observe(obs, infos, set(self.env.agents), set()), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step all agents that are still there."""
        present = set(self.env.agents)
        actions = {
            agent: _to_agent_action(space, part)
            for agent, space, part in zip(self._agents, self._action_spaces, action, strict=True)
            if agent in present
        }
        obs, rewards, ended, cut, infos = self.env.step(actions)
        reward = np.array(
            [_read_reward(rewards, agent) if agent in present else 0.0 for agent in self._agents]
        )
        remaining = {agent for agent in present if not (ended.get(agent) or cut.get(agent))}
        truncated = {agent for agent in present if cut.get(agent) and not ended.get(agent)}
        over = not remaining
        alive, cut = (truncated, set[Any]()) if over else (remaining, truncated)
        if lacking := [agent for agent in self._agents if agent in truncated - set(obs)]:
            raise ContractViolation(
                f"step() truncated agent {lacking[0]} without an observation of it. Give its last"
            )
        obs = self._observe(obs, infos, alive, cut)
        return obs, reward, over and not truncated, over and bool(truncated), {}

    def render(self) -> Any:
        """Render with the environment's own method."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _observe(self, obs: Any, infos: Any, alive: set[Any], cut: set[Any]) -> dict[str, Any]:
        """Build the joint observation of all agents; those ``cut`` off have just left."""
        rows = [obs.get(agent) if agent in alive | cut else None for agent in self._agents]
        made: dict[str, Any] = {}
        for name, part in self._agent_space.spaces.items():
            each = [row if row is None or self._wrap else row[name] for row in rows]
            made[name] = _stack_observations(part, each)
        if self._adds_mask:
            made[ACTION_MASK] = self._joint_mask(infos, alive)
        for name, marked in zip(STATUS, (alive, cut), strict=True):
            made[name] = np.array([agent in marked for agent in self._agents], np.int8)
        if self.unseen:
            made[STATE] = self.env.state()
        return made

    def _joint_mask(self, infos: Any, alive: set[Any]) -> np.ndarray:
        """Return the mask of all agents' choices; all 0 for an agent that has left."""
        made = np.zeros((len(self._agents), self._choices), np.int8)
        for row, agent in enumerate(self._agents):
            if agent not in alive:
                continue
            size, info = mask_size(self._action_spaces[row]), infos.get(agent, {})
            if (ACTION_MASK in info) != (agent in self._masked):
                said = ("has no", "gave one") if agent in self._masked else ("has an", "gave none")
                raise ContractViolation(
                    f"the info of agent {agent} {said[0]} {ACTION_MASK!r}, but reset() {said[1]}. "
                    "Give it at every step"
                )
            mask = np.asarray(info[ACTION_MASK]) if agent in self._masked else np.ones(size)
            if mask.shape != (size,):
                raise ContractViolation(
                    f"the {ACTION_MASK!r} of agent {agent} has shape {mask.shape}. Give one of "
                    f"shape ({size},)"
                )
            made[row, :size] = mask
        return made


def _read_reward(rewards: Any, agent: Any) -> float:
    """Return an agent's reward, 0 if it gets none."""
    reward = read_numbers(rewards.get(agent, 0.0), f"step() returned to agent {agent} the reward")
    if reward.size != 1:
        raise ContractViolation(
            f"step() returned to agent {agent} a reward of shape {reward.shape}. Give each agent "
            "one number"
        )
    return float(reward.item())


def _state_space(env: Any, beside: Any) -> spaces.Space[Any]:
    """Return the space of the environment's ``state()``; raises :class:`ContractViolation` if there
    is none."""
    space = getattr(env, "state_space", None)
    if not isinstance(space, spaces.Space):
        raise ContractViolation(
            "it has no state_space, so its state cannot be observed. Leave out state"
        )
    if STATE in beside:
        raise ContractViolation(f"its agents already observe an entry {STATE!r}. Leave out state")
    return space


def _stack_observations(space: spaces.Space[Any], rows: list[Any]) -> Any:
    """Stack one entry of the agents' observations, padded with 0; all 0 for an agent that
    has left."""
    made = []
    for path, leaf in space_leaves(space):
        whole = np.zeros((len(rows), *(leaf.shape or ())), leaf.dtype)
        for number, row in enumerate(rows):
            if row is not None:
                value = np.asarray(functools.reduce(lambda inside, key: inside[key], path, row))
                if value.dtype.kind not in ("biuf" if np.dtype(leaf.dtype).kind == "f" else "biu"):
                    raise ContractViolation(
                        f"an agent observes {value.dtype}, but its observation_space says "
                        f"{leaf.dtype}"
                    )
                inside: Any = (number, *(slice(0, size) for size in value.shape))
                whole[inside] = value
        made.append(whole)
    return arrange_leaves(space, iter(made))


def _to_agent_action(space: spaces.Space[Any], action: Any) -> Any:
    """Convert one agent's action to its own space; a choice that it does not have becomes its
    first."""
    if isinstance(space, spaces.Discrete):
        chosen = int(action) - int(space.start)
        return int(space.start) + (chosen if chosen < space.n else 0)
    return np.asarray(action, space.dtype)


def _common_space(each: list[Any], what: str) -> spaces.Space[Any]:
    """Return one space that fits all agents: their common one, the longest of vectors, or the most
    choices."""
    first = each[0]
    if all(space == first for space in each):
        return first
    if all(isinstance(space, spaces.Discrete) and space.start == 0 for space in each):
        return spaces.Discrete(max(int(space.n) for space in each))
    if what == "observations" and all(_is_vector(space) for space in each):
        size = max(space.shape[0] for space in each)
        ends = [[np.pad(np.asarray(end, np.float32), (0, size - len(end))) for end in pair]
                for pair in ((space.low, space.high) for space in each)]  # fmt: skip
        low, high = np.min([x[0] for x in ends], 0), np.max([x[1] for x in ends], 0)
        return spaces.Box(low, high, dtype=np.float32)
    if all(isinstance(space, spaces.Dict) for space in each):
        names = [set(space.spaces) for space in each]
        if all(found == names[0] for found in names):
            return spaces.Dict({name: _common_space([space[name] for space in each], what)
                                for name in sorted(names[0])})  # fmt: skip
    said = ", ".join(dict.fromkeys(str(space) for space in each))
    raise ContractViolation(
        f"its agents' {what} have different spaces: {said}. Only the lengths of observed vectors "
        "and numbers of choices may differ. Give all agents one space (SuperSuit can pad them)"
    )


def _is_vector(space: Any) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 1

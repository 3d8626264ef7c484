"""Several agents in one world: their names, their joint spaces, and the space of each agent.

Every leaf of an observation or action has an agent axis behind the axes of seed and environment.
The spaces have it too: the joint space stacks the agents' spaces (:func:`joint`). A dict
observation may mark with its entry ``alive`` which agents are still in the episode, and with
``truncated`` which of the others were cut off by the step before: their last observation is still
there, for the values that learners bootstrap from. Entries that only critics see
(``problem/critic_only_obs.py``) belong to all agents together and have no agent axis.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.problem import critic_only_obs
from sterling.problem.channels import NAME_PATTERN, Channel
from sterling.system.mistake import Mistake

ALIVE = "alive"  # entry of a dict observation: which agents are still in the episode
TRUNCATED = "truncated"  # entry: which agents the last step cut off, while the episode goes on
STATUS = (ALIVE, TRUNCATED)  # entries that no network reads
REWARD = "reward"  # the channel of each agent's own reward


def cut_off_alone(obs: Any) -> Any:
    """Return which observations show the last of an agent that was cut off while others go on;
    None if observations do not mark it. Sums of rewards end before their rows, and learners
    bootstrap from them: what the agent would have earned is unknown."""
    marked = isinstance(obs, dict) and TRUNCATED in obs
    return obs[TRUNCATED].astype(bool).any(-1) if marked else None


@dataclasses.dataclass(frozen=True)
class Agents:
    """The names of a world's agents, which all have the same observation and action space."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise Mistake for equal names, and for names that cannot be part of a column's name."""

        for name in self.names:
            if not NAME_PATTERN.fullmatch(name):
                raise Mistake(f"{name!r} is not a valid agent name. Use letters, digits and _.")
        if not self.names or len(set(self.names)) < len(self.names):
            raise Mistake(f"agents={self.names}: name at least one agent, each name once.")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def channels(self) -> dict[str, Channel]:
        """Return the channel of each agent's own reward; the world's reward is their sum."""
        return {REWARD: Channel(parts=self.names, better=1)}

    def single_agent_spec(self, spec: Any) -> Any:
        """Return the problem (:class:`sterling.types.Spec`) of one agent: its observation without
        ``alive``, ``truncated`` and ``unseen`` entries, and its action. Every agent of every
        environment counts as one environment."""
        spec = critic_only_obs.spec_without_unseen(spec)
        obs = critic_only_obs.space_without(spec.obs, STATUS)
        return dataclasses.replace(
            spec,
            obs=agent_space(obs, len(self)),
            action=agent_space(spec.action, len(self)),
            envs=spec.envs * len(self),
            channels={},
            agents=None,
        )


def unread_entries(spec: Any) -> tuple[str, ...]:
    """Return the entries of a problem's observation that policies can do without: those that only
    critics get, and several agents' ``truncated``."""
    return (*spec.unseen, *((TRUNCATED,) if spec.agents is not None else ()))


def joint(space: spaces.Space[Any], count: int) -> spaces.Space[Any]:
    """Return the joint space of ``count`` agents that each have ``space``."""
    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: joint(part, count) for name, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([joint(part, count) for part in space.spaces])
    if isinstance(space, spaces.Box):
        low, high = (np.stack([end] * count) for end in (space.low, space.high))
        return spaces.Box(low, high, dtype=space.dtype.type)
    if isinstance(space, spaces.Discrete):
        start = np.full(count, space.start)
        return spaces.MultiDiscrete(np.full(count, space.n), start=start)
    if isinstance(space, spaces.MultiDiscrete):
        nvec, start = (np.stack([each] * count) for each in (space.nvec, space.start))
        return spaces.MultiDiscrete(nvec, start=start)
    return spaces.MultiBinary((count, *_as_multi_binary(space).shape))


def agent_space(space: spaces.Space[Any], count: int) -> spaces.Space[Any]:
    """Return one agent's space, given the joint ``space`` of ``count`` agents. Raise Mistake if
    the agents have different spaces, or if ``space`` has no agent axis."""

    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: agent_space(part, count) for name, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([agent_space(part, count) for part in space.spaces])
    if not space.shape or space.shape[0] != count:
        raise Mistake(f"{space} has no axis of {count} agents. Build it with `joint`.")
    made = _first_agent_space(space)
    if joint(made, count) != space:
        raise Mistake(f"the agents have different spaces ({space}). Give all of them one space.")
    return made


def _first_agent_space(space: Any) -> spaces.Space[Any]:
    """Return the first agent's space."""
    if isinstance(space, spaces.Box):
        return spaces.Box(space.low[0], space.high[0], dtype=space.dtype.type)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return spaces.Discrete(int(space.nvec[0]), start=int(space.start[0]))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec[0], start=space.start[0])
    shape = _as_multi_binary(space).shape[1:]
    return spaces.MultiBinary(shape if len(shape) > 1 else int(shape[0]))


def _as_multi_binary(space: Any) -> spaces.MultiBinary:
    if isinstance(space, spaces.MultiBinary):
        return space

    raise Mistake(
        f"{type(space).__name__} spaces are not supported for several agents. Use Box, Discrete, "
        "MultiDiscrete, MultiBinary, or a Dict/Tuple of them."
    )

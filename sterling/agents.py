"""Several agents in one world: who they are, their spaces side by side, and the space of each.

Every leaf of an observation or action has an axis of agents behind those of seed and environment,
and so have the spaces, in which what is seen and done by all lies side by side (:func:`joint`). An
observation that is a dict may say by the entry ``alive`` who is still in the episode. Entries that
only critics see (``sterling/unseen.py``) belong to all agents together and have no such axis.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling import unseen
from sterling.channels import NAME, Channel

ALIVE = "alive"  # the entry of a dict observation that says which agents are still there
REWARD = "reward"  # the channel of each agent's own reward


@dataclasses.dataclass(frozen=True)
class Agents:
    """The agents of a world, which see and act in spaces alike."""

    names: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raise Mistake for names that cannot be told apart, or cannot be a column's."""
        from sterling.types import Mistake

        for name in self.names:
            if not NAME.fullmatch(name):
                raise Mistake(f"{name!r} cannot name an agent; use letters, digits and _")
        if not self.names or len(set(self.names)) < len(self.names):
            raise Mistake(f"agents need names of their own, at least one; got {self.names}")

    def __len__(self) -> int:
        return len(self.names)

    @property
    def channels(self) -> dict[str, Channel]:
        """Each agent's own reward, of which the world's is the sum."""
        return {REWARD: Channel(parts=self.names, better=1)}

    def of_each(self, spec: Any) -> Any:
        """The problem (:class:`sterling.types.Spec`) of one agent: what it sees, without ``alive``
        and what is ``unseen``, and does; every agent of every environment counts as an environment
        of its own."""
        spec = unseen.spec_without(spec)
        obs = spec.obs
        if isinstance(obs, spaces.Dict) and ALIVE in obs.spaces:
            obs = spaces.Dict({name: x for name, x in obs.spaces.items() if name != ALIVE})
        return dataclasses.replace(
            spec,
            obs=apart(obs, len(self)),
            action=apart(spec.action, len(self)),
            envs=spec.envs * len(self),
            channels={},
            agents=None,
        )


def joint(space: spaces.Space[Any], count: int) -> spaces.Space[Any]:
    """The space of ``count`` agents side by side, each of whom has ``space``."""
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
    return spaces.MultiBinary((count, *_known(space).shape))


def apart(space: spaces.Space[Any], count: int) -> spaces.Space[Any]:
    """The space of each of ``count`` agents, where ``space`` is that of all; Mistake where agents
    have different ones, or it has no axis of agents."""
    from sterling.types import Mistake

    if isinstance(space, spaces.Dict):
        return spaces.Dict({name: apart(part, count) for name, part in space.spaces.items()})
    if isinstance(space, spaces.Tuple):
        return spaces.Tuple([apart(part, count) for part in space.spaces])
    if not space.shape or space.shape[0] != count:
        raise Mistake(f"{space} has no axis of {count} agents; make it with sterling.agents.joint")
    made = _first(space)
    if joint(made, count) != space:
        raise Mistake(f"the agents have different spaces, side by side {space}; give all one space")
    return made


def _first(space: Any) -> spaces.Space[Any]:
    """The first agent's."""
    if isinstance(space, spaces.Box):
        return spaces.Box(space.low[0], space.high[0], dtype=space.dtype.type)
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return spaces.Discrete(int(space.nvec[0]), start=int(space.start[0]))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec[0], start=space.start[0])
    shape = _known(space).shape[1:]
    return spaces.MultiBinary(shape if len(shape) > 1 else int(shape[0]))


def _known(space: Any) -> spaces.MultiBinary:
    if isinstance(space, spaces.MultiBinary):
        return space
    from sterling.types import Mistake

    raise Mistake(
        f"a space of type {type(space).__name__} is not understood; use Box, Discrete, "
        "MultiDiscrete, MultiBinary, or a Dict/Tuple of them"
    )

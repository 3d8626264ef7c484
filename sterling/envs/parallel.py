"""PettingZoo's environments of several agents as one Gymnasium environment of all of them.

This file runs inside worker processes: like ``seat`` it imports nothing slow, and PettingZoo itself
only to turn an AEC environment, in which agents move in turn, into a parallel one.
"""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from sterling.agents import ALIVE, joint
from sterling.envs.board import MASK, PROPER, Violation, choices, leaves, tree
from sterling.unseen import STATE


def is_of_agents(env: Any) -> bool:
    """Whether ``env`` is one of PettingZoo's, of either kind."""
    return hasattr(env, "possible_agents") and not isinstance(env, gymnasium.Env)


def together(env: Any) -> Together:
    """``env``, one of PettingZoo's, as one environment; :class:`Violation` where that cannot be.

    Its state is observed as well, for critics alone, where it has an attribute ``unseen`` that is
    ``("state",)``.
    """
    named = getattr(env, "unseen", ())
    if hasattr(env, "agent_iter"):
        if not env.metadata.get("is_parallelizable", False):
            raise Violation(
                "its agents move in turn and PettingZoo does not say that they could move at once "
                '(metadata["is_parallelizable"]); only parallel environments are stepped here'
            )
        from pettingzoo.utils.conversions import aec_to_parallel

        env = aec_to_parallel(env)
    if named and tuple(named) != (STATE,):
        raise Violation(
            f"its unseen is {named!r}; PettingZoo's state is all that can be: ('state',)"
        )
    return Together(env, bool(named))


class Together(gymnasium.Env[Any, Any]):
    """All agents of a parallel environment: spaces have an axis of agents, in the order of
    ``possible_agents``; the reward is a vector, an agent's own each.

    Observed is a dict of what the agents see, ``observation`` unless that is a dict itself, with
    ``alive``, who is still there, and ``action_mask`` where agents are told what they may do, in
    what they see or in ``info``. Of an agent that is gone all else is 0, and what it is told to do
    goes nowhere. The episode ends when nobody is left. It is cut when those who were there last
    were cut; their last observation has them alive.

    Vectors of different lengths are filled up with zeros, and numbers of choices with some that
    ``action_mask`` forbids. Agents whose spaces differ otherwise are refused.

    With ``stateful`` an entry ``state``, which only critics see, is what the environment's
    ``state()`` answers.
    """

    def __init__(self, env: Any, stateful: bool = False):
        self.env, self.metadata = env, {**getattr(env, "metadata", {})}
        self.render_mode = getattr(env, "render_mode", None)
        self.names = tuple(str(name) for name in env.possible_agents)
        self._agents = list(env.possible_agents)
        own = [env.observation_space(agent) for agent in self._agents]
        self._acts = [env.action_space(agent) for agent in self._agents]
        seen: Any = _alike(own, "observations")
        act = _alike(self._acts, "actions")
        if len(self.names) < 2 or not isinstance(act, spaces.Discrete | spaces.Box):
            said = f"it has {len(self.names)} agents who act in {act}"
            raise Violation(f"{said}; it must have two or more, in a Discrete or a Box each")
        self._wrap = not isinstance(seen, spaces.Dict)
        parts = {PROPER: seen} if self._wrap else dict(seen.spaces)
        _, infos = env.reset(seed=0)
        told = bool(infos) and all(MASK in infos.get(agent, {}) for agent in self._agents)
        self._choices = choices(act)
        fewer = any(choices(space) < self._choices for space in self._acts)
        self._added = "" if MASK in parts else "info" if told else "sizes" if fewer else ""
        self._one = spaces.Dict(parts)
        side = {name: joint(part, len(self.names)) for name, part in parts.items()}
        if self._added:
            side[MASK] = spaces.MultiBinary((len(self.names), self._choices))
        side[ALIVE] = spaces.MultiBinary(len(self.names))
        self.unseen = (STATE,) if stateful else ()
        if stateful:
            side[STATE] = _state_in(env, side)
        self.observation_space = spaces.Dict(side)
        self.action_space = joint(act, len(self.names))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode."""
        obs, infos = self.env.reset(seed=seed, options=options)
        return self._seen(obs, infos, set(self.env.agents)), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """All who are there move."""
        present = set(self.env.agents)
        done = {agent: _own(space, part) for agent, space, part in
                zip(self._agents, self._acts, action, strict=True) if agent in present}  # fmt: skip
        obs, rewards, ended, cut, infos = self.env.step(done)
        reward = np.array([float(rewards.get(agent, 0.0)) if agent in present else 0.0
                           for agent in self._agents])  # fmt: skip
        stay = {agent for agent in present if not (ended.get(agent) or cut.get(agent))}
        over = not stay
        waiting = {agent for agent in present if cut.get(agent) and not ended.get(agent)}
        alive = waiting if over else stay
        seen = self._seen(obs, infos, alive)
        return seen, reward, over and not waiting, over and bool(waiting), {}

    def render(self) -> Any:
        """The environment's own picture."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def _seen(self, obs: Any, infos: Any, alive: set[Any]) -> dict[str, Any]:
        """What all agents see."""
        rows = [obs.get(agent) if agent in alive else None for agent in self._agents]
        made: dict[str, Any] = {}
        for name, part in self._one.spaces.items():
            each = [row if row is None or self._wrap else row[name] for row in rows]
            made[name] = _stacked(part, each)
        if self._added:
            made[MASK] = np.zeros((len(self._agents), self._choices), np.int8)
        for row, agent in enumerate(self._agents if self._added else ()):
            if agent in alive:
                told = self._added == "info" and infos.get(agent, {}).get(MASK)
                size = choices(self._acts[row])
                made[MASK][row, :size] = 1 if told is False else np.asarray(told)
        made[ALIVE] = np.array([agent in alive for agent in self._agents], np.int8)
        if self.unseen:
            made[STATE] = self.env.state()
        return made


def _state_in(env: Any, beside: Any) -> spaces.Space[Any]:
    """The space of what an environment's ``state()`` answers; :class:`Violation` without one."""
    space = getattr(env, "state_space", None)
    if not isinstance(space, spaces.Space):
        raise Violation("it has no state_space, so its state cannot be shown; leave out state")
    if STATE in beside:
        raise Violation(f"its agents see an entry {STATE!r} of their own; leave out state")
    return space


def _stacked(space: spaces.Space[Any], rows: list[Any]) -> Any:
    """One part of what each agent sees side by side, 0 where it sees nothing."""
    made = []
    for path, leaf in leaves(space):
        whole = np.zeros((len(rows), *(leaf.shape or ())), leaf.dtype)
        for number, row in enumerate(rows):
            if row is not None:
                value = np.asarray(functools.reduce(lambda inside, key: inside[key], path, row))
                inside: Any = (number, *(slice(0, size) for size in value.shape))
                whole[inside] = value
        made.append(whole)
    return tree(space, iter(made))


def _own(space: spaces.Space[Any], action: Any) -> Any:
    """One agent's action in its own space; a choice that it does not have is its first."""
    if isinstance(space, spaces.Discrete):
        chosen = int(action) - int(space.start)
        return int(space.start) + (chosen if chosen < space.n else 0)
    return np.asarray(action, space.dtype)


def _alike(each: list[Any], what: str) -> spaces.Space[Any]:
    """One space for all agents: theirs, or the longest of vectors and the most of choices."""
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
            return spaces.Dict({name: _alike([space[name] for space in each], what)
                                for name in sorted(names[0])})  # fmt: skip
    said = ", ".join(dict.fromkeys(str(space) for space in each))
    raise Violation(
        f"its agents' {what} are of different spaces, {said}; only vectors that are observed and "
        "numbers of choices may differ: give all agents one space (SuperSuit pads others)"
    )


def _is_vector(space: Any) -> bool:
    return isinstance(space, spaces.Box) and len(space.shape) == 1

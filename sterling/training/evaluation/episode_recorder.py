"""Record the steps of evaluation episodes while they are played step by step on the host."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool

from sterling.experience.rollouts.whole_episodes import EpisodeState
from sterling.nets.obs_encoder import without_mask
from sterling.problem.critic_only_obs import without_entries
from sterling.problem.joined_path import named_leaves
from sterling.report.episodes.episodes_file import KEPT_EACH, MAX_BYTES, EpisodeId, EpisodeSteps
from sterling.types import Action, Spec, Step

MAX_OBS_NUMBERS = 64  # larger observations, such as pictures, are not recorded
MAX_EPISODE_BYTES = MAX_BYTES // (2 * KEPT_EACH)  # longer episodes are recorded up to there

Rows = list[dict[str, np.ndarray]]


@runtime_checkable
class EpisodeObserver(Protocol):
    """Sees the episodes of one evaluation, round by round."""

    def begin_round(self, number: int) -> None:
        """Begin the ``number``-th episode of every env."""

    def notice(self, before: EpisodeState, action: Action, step: Step) -> None:
        """See one step: the episodes ``before`` it, the actions, and the world's answer."""

    def end_round(self, number: int, returns: Any) -> None:
        """End the round; ``returns`` ``(seed, env)`` are those of its episodes."""


class EpisodeRecorder:
    """Records the episodes of one evaluation, round by round.

    ``wanted``: the episodes to record. None: all, of which each round keeps every seed's worst and
    best so far, so that memory does not grow with the number of episodes.
    """

    def __init__(self, seeds: list[int], spec: Spec, wanted: Collection[EpisodeId] | None = None):
        self._seeds, self._envs, self._hidden = seeds, spec.envs, spec.unseen
        self._wanted = None if wanted is None else set(wanted)
        self._small = _count_numbers(spec.obs) <= MAX_OBS_NUMBERS
        self._rows: dict[tuple[int, int], Rows] = {}  # of the running round, by (seed index, env)
        self._finished: dict[EpisodeId, tuple[float, EpisodeSteps]] = {}

    @property
    def steps(self) -> dict[EpisodeId, EpisodeSteps]:
        """Return the recorded episodes."""
        return {which: steps for which, (_, steps) in self._finished.items()}

    def begin_round(self, number: int) -> None:
        """Begin the ``number``-th episode of every env."""
        pairs = [(at, env) for at in range(len(self._seeds)) for env in range(self._envs)]
        self._rows = {
            (at, env): []
            for at, env in pairs
            if self._wanted is None or (self._seeds[at], number * self._envs + env) in self._wanted
        }

    def notice(self, before: EpisodeState, action: Action, step: Step) -> None:
        """Record one step of the episodes that were not over ``before`` it. Where the world crashed
        and started over, the episode's record does too."""
        counted, running = step.counted, ~np.asarray(before.over)
        mask = np.asarray(step.mask)
        crashed = running & np.asarray(step.last) & ~mask
        seen = without_entries(without_mask(before.obs), self._hidden) if self._small else {}
        row = {f"obs/{name}": x for name, x in _named_leaves(seen)} | {
            **{f"action/{name}": x for name, x in _named_leaves(action)},
            **{f"channel/{name}": np.asarray(x) for name, x in step.channels.items()},
            "reward": np.asarray(counted.reward),
            "discount": np.asarray(step.discount),
        }
        self._add_rows(row, running & mask, crashed)

    def _add_rows(
        self, row: dict[str, np.ndarray], counts: Bool[np.ndarray, "seed env"], crashed: Any
    ) -> None:
        most = MAX_EPISODE_BYTES // max(1, sum(x[0, 0].nbytes for x in row.values()))
        for place, rows in self._rows.items():
            if crashed[place]:
                rows.clear()
            elif counts[place] and len(rows) < most:
                rows.append({name: np.array(x[place]) for name, x in row.items()})

    def end_round(self, number: int, returns: Any) -> None:
        """End the round; ``returns`` ``(seed, env)`` are those of its episodes."""
        for (at, env), rows in self._rows.items():
            if rows:
                which = (self._seeds[at], number * self._envs + env)
                self._finished[which] = (float(returns[at, env]), _join_rows(rows))
        self._rows = {}
        if self._wanted is None:
            self._finished = {
                which: self._finished[which]
                for seed in self._seeds
                for which in self._extremes(seed)
            }

    def _extremes(self, seed: int) -> list[EpisodeId]:
        """Return a seed's worst and best episodes so far; ties go by number."""
        own = sorted(which for which in self._finished if which[0] == seed)
        worst = sorted(own, key=lambda which: self._finished[which][0])[:KEPT_EACH]
        best = sorted(own, key=lambda which: -self._finished[which][0])[:KEPT_EACH]
        return list(dict.fromkeys([*worst, *best]))


def _join_rows(rows: Rows) -> EpisodeSteps:
    whole = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
    parts: dict[str, dict[str, np.ndarray]] = {"obs": {}, "action": {}, "channel": {}}
    for name, x in whole.items():
        room, slash, rest = name.partition("/")
        if slash:
            parts[room][rest] = x
    actions = [x.reshape(len(rows), -1) for x in parts["action"].values()]
    action = next(iter(parts["action"].values())) if len(actions) == 1 else np.hstack(actions)
    rewards = whole["reward"].astype(np.float32), whole["discount"].astype(np.float32)
    return EpisodeSteps(action, *rewards, parts["obs"], parts["channel"])


def _named_leaves(tree: Any) -> list[tuple[str, np.ndarray]]:
    return [(name, np.asarray(x)) for name, x in named_leaves(tree)]


def _count_numbers(space: Any) -> int:
    parts = getattr(space, "spaces", None)
    if parts is None:
        return int(np.prod(space.shape or (1,)))
    return sum(
        _count_numbers(part) for part in (parts.values() if hasattr(parts, "values") else parts)
    )

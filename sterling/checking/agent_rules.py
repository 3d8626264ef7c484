"""Checks of worlds of several agents, on recorded steps (see ``problem/agent_axis.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from gymnasium import spaces

from sterling.checking.environments.random_play import Trajectory
from sterling.checking.review_findings import Check, CheckFailed, NotChecked
from sterling.problem.agent_axis import ALIVE, REWARD, TRUNCATED
from sterling.types import Spec

ROUNDING = 1e-4  # relative


def agent_checks(spec: Spec, trajectory: Trajectory, code: Any) -> Iterator[Check]:
    """Yield the checks of several agents' recorded steps; ``code`` is the function that made the
    steps."""
    yield "the spaces have a row for each agent", partial(_describe_agents, spec), code
    yield (
        "the reward is the sum of the agents' rewards",
        partial(_check_reward_sum, spec, trajectory),
        code,
    )
    if isinstance(spec.obs, spaces.Dict) and ALIVE in spec.obs.spaces:
        yield (
            "an agent that left stays away until the episode is over",
            partial(_check_departures, trajectory),
            code,
        )
        yield (
            "an agent that left gets no reward",
            partial(_check_departed_unpaid, spec, trajectory),
            code,
        )


def _dict_entries(obs: Any) -> dict[str, np.ndarray]:
    return obs if isinstance(obs, dict) else {}


def _describe_agents(spec: Spec) -> str:
    assert spec.agents is not None
    one = spec.agents.single_agent_spec(spec)
    beside = f"; critics also see {', '.join(spec.unseen)}" if spec.unseen else ""
    return f"{', '.join(spec.agents.names)}, each with {one.obs} and {one.action}{beside}"


def _agent_rewards(spec: Spec, trajectory: Trajectory) -> np.ndarray:
    """Return each agent's reward, ``(time, seed, env, agent)``."""
    assert spec.agents is not None
    rewards, count = trajectory.channels.get(REWARD), len(spec.agents)
    if rewards is None or rewards.shape != (*trajectory.reward.shape, count):
        said = "nothing" if rewards is None else f"numbers of shape {rewards.shape[3:]}"
        raise CheckFailed(
            f"the channel {REWARD!r} holds {said}, but there are {count} agents",
            "report each agent's own reward there",
        )
    return rewards


def _check_reward_sum(spec: Spec, trajectory: Trajectory) -> str:
    rewards, total, valid = _agent_rewards(spec, trajectory), trajectory.reward, trajectory.mask
    if not np.isfinite(rewards[valid]).all():
        raise CheckFailed("an agent's reward is NaN or infinite", "clip it, or end the episode")
    wrong = (np.abs(rewards.sum(-1) - total) > ROUNDING * (1.0 + np.abs(rewards).sum(-1))) & valid
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise CheckFailed(
            f"step {at[0]} returned reward {total[at]:.6g}, but the agents' rewards are "
            f"{', '.join(f'{x:.6g}' for x in rewards[at])}",
            "return their sum as the reward",
        )
    return ""


def _alive_before(trajectory: Trajectory) -> np.ndarray:
    """Return which agents were there when each step's actions were chosen, ``(time, seed, env,
    agent)``."""
    first, after = (
        _dict_entries(obs)[ALIVE].astype(bool) for obs in (trajectory.first, trajectory.obs)
    )
    return np.concatenate([first[None], after[:-1]])


def _check_departures(trajectory: Trajectory) -> str:
    before, after = _alive_before(trajectory), _dict_entries(trajectory.obs)[ALIVE].astype(bool)
    back = (after & ~before).any(-1) & trajectory.mask
    if back.any():
        raise CheckFailed(
            f"at step {np.argwhere(back)[0][0]} an agent that had left is there again",
            "let an agent that left stay away until the episode is over; for one that waits, use "
            "action_mask",
        )
    empty = ~after.any(-1) & trajectory.mask & ~trajectory.last
    if empty.any():
        raise CheckFailed(
            f"after step {np.argwhere(empty)[0][0]} all agents have left but the episode continues",
            "end the episode with the step in which the last agent leaves",
        )
    if TRUNCATED in _dict_entries(trajectory.obs):
        cut = _dict_entries(trajectory.obs)[TRUNCATED].astype(bool)
        wrong = (cut & (after | ~before)).any(-1) & trajectory.mask
        if wrong.any():
            raise CheckFailed(
                f"after step {np.argwhere(wrong)[0][0]} {TRUNCATED} marks an agent that is still "
                "there, or had left before",
                f"mark only the agents that this step cuts off: their {ALIVE} is 0 from then on",
            )
    left = int((before & ~after & trajectory.mask[..., None] & ~trajectory.last[..., None]).sum())
    return f"{left} left before the episode was over"


def _check_departed_unpaid(spec: Spec, trajectory: Trajectory) -> str:
    before, rewards = _alive_before(trajectory), _agent_rewards(spec, trajectory)
    gone = ~before & trajectory.mask[..., None]
    if not gone.any():
        raise NotChecked("no agent left before the episode was over")
    if rewards[gone].any():
        at = tuple(np.argwhere(gone & (rewards != 0.0))[0])
        raise CheckFailed(
            f"step {at[0]} rewards an agent that has left with {rewards[at]:.6g}",
            "reward it in the step in which it leaves, or keep it alive",
        )
    return ""

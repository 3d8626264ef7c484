"""The rules of worlds of several agents, looked for in what one answered (see ``agents.py``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from sterling.agents import ALIVE, REWARD
from sterling.checking.finding import Check, Unseen, Wrong
from sterling.checking.play import Played
from sterling.envs.board import MASK
from sterling.types import Spec

ROUNDING = 1e-4  # relative


def agents_rules(spec: Spec, played: Played, code: Any) -> Iterator[Check]:
    """Yield the checks of what several agents were answered; ``code`` answers the steps."""
    yield "the spaces have a row for each agent", partial(_rows, spec), code
    yield "the reward is the sum of the agents' own", partial(_sums, spec, played), code
    if ALIVE in _entries(played.obs):
        yield "who has left is gone until the episode is over", partial(_gone, played), code
        yield "who is gone is paid nothing", partial(_unpaid, spec, played), code
    if MASK in _entries(played.obs):
        yield "every agent that is there may do something", partial(_allowed, played), code


def _entries(obs: Any) -> dict[str, np.ndarray]:
    return obs if isinstance(obs, dict) else {}


def _rows(spec: Spec) -> str:
    assert spec.agents is not None
    one = spec.agents.of_each(spec)
    beside = f"; critics also see {', '.join(spec.unseen)}" if spec.unseen else ""
    return f"{', '.join(spec.agents.names)}, who each see {one.obs} and do {one.action}{beside}"


def _own(spec: Spec, played: Played) -> np.ndarray:
    """Each agent's reward ``(time, seed, env, agent)``."""
    assert spec.agents is not None
    own, count = played.channels.get(REWARD), len(spec.agents)
    if own is None or own.shape != (*played.reward.shape, count):
        said = "nothing" if own is None else f"numbers of shape {own.shape[3:]}"
        raise Wrong(f"the channel {REWARD!r} holds {said} where there are {count} agents",
                    "report each agent's own reward there")  # fmt: skip
    return own


def _sums(spec: Spec, played: Played) -> str:
    own, paid, lived = _own(spec, played), played.reward, played.mask
    if not np.isfinite(own[lived]).all():
        raise Wrong("an agent's reward is NaN or infinite", "clip it, or end the episode")
    wrong = (np.abs(own.sum(-1) - paid) > ROUNDING * (1.0 + np.abs(own).sum(-1))) & lived
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        raise Wrong(
            f"step {at[0]} answered with reward {paid[at]:.6g} where the agents' own are "
            f"{', '.join(f'{x:.6g}' for x in own[at])}",
            "answer with their sum as the reward",
        )
    return ""


def _before(played: Played) -> np.ndarray:
    """Who was there when each step's actions were chosen, ``(time, seed, env, agent)``."""
    first, after = (_entries(obs)[ALIVE].astype(bool) for obs in (played.first, played.obs))
    return np.concatenate([first[None], after[:-1]])


def _gone(played: Played) -> str:
    before, after = _before(played), _entries(played.obs)[ALIVE].astype(bool)
    back = (after & ~before).any(-1) & played.mask
    if back.any():
        raise Wrong(
            f"at step {np.argwhere(back)[0][0]} an agent that had left is there again",
            "who leaves stays away until the episode is over; who waits has an action_mask",
        )
    empty = ~after.any(-1) & played.mask & ~played.last
    if empty.any():
        raise Wrong(
            f"after step {np.argwhere(empty)[0][0]} no agent is there and the episode goes on",
            "end the episode with the step in which the last agent leaves",
        )
    left = int((before & ~after & played.mask[..., None] & ~played.last[..., None]).sum())
    return f"{left} left before the episode was over"


def _unpaid(spec: Spec, played: Played) -> str:
    before, own = _before(played), _own(spec, played)
    gone = ~before & played.mask[..., None]
    if not gone.any():
        raise Unseen("no agent left before the episode was over")
    if own[gone].any():
        at = tuple(np.argwhere(gone & (own != 0.0))[0])
        raise Wrong(f"step {at[0]} pays {own[at]:.6g} to an agent that has left",
                    "pay it in the step in which it leaves, or keep it alive")  # fmt: skip
    return ""


def _allowed(played: Played) -> str:
    for when, obs in (("reset", played.first), ("step", played.obs)):
        allowed = _entries(obs)[MASK].astype(bool).any(-1)
        there = _entries(obs)[ALIVE].astype(bool) if ALIVE in obs else np.ones_like(allowed)
        if when == "step":  # after the last action of an episode nobody acts
            there = there & ~played.last[..., None]
        if (there & ~allowed).any():
            raise Wrong(
                f"{when} answers with an action_mask that allows an agent nothing",
                "an agent that waits has a row that allows one action, as doing nothing",
            )
    return ""

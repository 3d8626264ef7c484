"""The rules that every world keeps to, looked for in what it answered (see ``types.Step``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np

from sterling.checking.agents import agents_rules
from sterling.checking.finding import Check, Unseen, Wrong
from sterling.checking.play import Played
from sterling.envs.board import leaves
from sterling.goals import ACHIEVED, DESIRED
from sterling.types import Mistake, Spec

JUDGED = "goals are judged as steps were answered"


def rules(spec: Spec, played: Played, code: Any) -> Iterator[Check]:
    """Yield the checks of what was played; ``code`` answers the steps."""
    yield "observations have their space's shape and type", partial(_forms, spec, played), code
    yield "observations lie in their space", partial(_inside, spec, played), code
    yield "rewards are finite", partial(_rewards, played), code
    yield "episodes end", partial(_ends, played), code
    yield "the step after an episode's last resets and is masked", partial(_resets, played), code
    yield "discount is 0 at ends only, and within [-1, 1]", partial(_discounts, played), code
    yield "the final observation of an episode is shown", partial(_final, played), code
    if spec.judge is not None:
        yield JUDGED, partial(_judged, spec, played), code
    if spec.agents is not None:
        yield from agents_rules(spec, played, code)


def _parts(spec: Spec, obs: Any) -> Iterator[tuple[str, Any, np.ndarray]]:
    """The parts of observations: name, space, values."""
    for (path, space), values in zip(leaves(spec.obs), jax.tree.leaves(obs), strict=True):
        yield "".join(f"[{key!r}]" for key in path), space, values


def _forms(spec: Spec, played: Played) -> str:
    for when, obs, axes in (("reset", played.first, 2), ("step", played.obs, 3)):
        for name, space, values in _parts(spec, obs):
            wanted = space.shape or ()
            if values.shape[axes:] != wanted:
                raise Wrong(f"{when} answers with observation{name} of shape {values.shape[axes:]} "
                            f"where the space says {wanted}")  # fmt: skip
            if values.dtype.kind != np.dtype(space.dtype).kind:
                raise Wrong(
                    f"{when} answers with observation{name} of type {values.dtype} where "
                    f"the space says {space.dtype}",
                    "convert it, or correct the space",
                )
    return ""


def _inside(spec: Spec, played: Played) -> str:
    for when, obs in (("reset", played.first), ("step", played.obs)):
        for name, space, values in _parts(spec, obs):
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise Wrong(f"{when} answers with NaN or infinity in observation{name}")
            low, high = _bounds(space)
            slack = 1e-5 * (1.0 + np.abs(values)) if values.dtype.kind == "f" else 0
            outside = (values < low - slack) | (values > high + slack)
            if outside.any():
                first = np.argwhere(outside)[0]
                at = tuple(first)
                where = f" at step {first[0]}" if when == "step" else ""
                raise Wrong(
                    f"{when} answers with {values[at]:.6g} in observation{name}{where}, outside "
                    f"{space}",
                    "widen the space, or clip what is observed",
                )
    return ""


def _bounds(space: Any) -> tuple[Any, Any]:
    if hasattr(space, "low"):
        return space.low.astype(np.float64), space.high.astype(np.float64)
    start = getattr(space, "start", 0)
    return start, start + (space.n if hasattr(space, "n") and space.shape == () else
                           getattr(space, "nvec", 2)) - 1  # fmt: skip


def _rewards(played: Played) -> str:
    if not np.isfinite(played.reward).all():
        raise Wrong("a reward is NaN or infinite", "clip it, or end the episode")
    low, high = played.reward.min(), played.reward.max()
    return f"between {low:.4g} and {high:.4g}"


def _ends(played: Played) -> str:
    ended = int(played.last.sum())
    if not ended:
        raise Unseen(f"no episode ended within {len(played.last)} steps: the three rules below "
                     "were not seen; a limit is set by --env max_episode_steps=N")  # fmt: skip
    return f"{ended} did"


def _resets(played: Played) -> str:
    after, mask = played.last[:-1], played.mask[1:]
    if not played.mask[0].all():
        raise Wrong("the very first step is masked", "begin with mask True: reset has just been")
    if (after & mask).any():
        raise Wrong(
            "a step that follows an episode's last is no reset: its mask is True",
            "after `last`, ignore the next action, reset, and answer with the first observation "
            "and mask False",
        )
    between = ~mask & ~after
    if between.any():
        raise Wrong("a row is masked in the middle of an episode", "mask only the step that resets")
    if (played.last & ~played.mask).any():
        raise Wrong("a row that resets is an episode's last as well",
                    "answer with last False where mask is False")  # fmt: skip
    return _seen(played)


def _discounts(played: Played) -> str:
    lived = played.discount[played.mask]
    if (np.abs(lived) > 1.0).any():
        raise Wrong(f"a discount is {lived.min():.4g} or {lived.max():.4g}, outside [-1, 1]")
    if ((played.discount == 0.0) & ~played.last & played.mask).any():
        raise Wrong("a discount is 0 where the episode goes on",
                    "a step that ends an episode has last True")  # fmt: skip
    _seen(played)
    ended = (played.discount == 0.0) & played.last
    return f"{int(ended.sum())} ended, {int((played.last & ~ended).sum())} were cut"


def _final(played: Played) -> str:
    """An observation at an end that is the next episode's first is one that hides the end, unless
    all observations are alike."""
    _seen(played)
    ends = played.last[:-1]
    obs, following = ([x[:-1][ends] for x in jax.tree.leaves(played.obs)],
                      [x[1:][ends] for x in jax.tree.leaves(played.obs)])  # fmt: skip
    moving = any((x[1:][played.mask[1:]] != x[:-1][played.mask[1:]]).any()
                 for x in jax.tree.leaves(played.obs))  # fmt: skip
    if not moving:
        raise Unseen("observations never change within an episode")
    if all(np.array_equal(x, y) for x, y in zip(obs, following, strict=True)):
        raise Wrong(
            "at every end the observation is the first one of the next episode: the state in which "
            "the episode ended is never seen",
            "answer with the observation that the last action led to; the next step resets",
        )
    return ""


def _judged(spec: Spec, played: Played) -> str:
    """Whether the judge of goals says of every step what the step itself said."""
    judge: Any = spec.judge
    try:
        of_rows = jax.jit(jax.vmap(jax.vmap(jax.vmap(judge))))
        found = of_rows(*(jax.numpy.asarray(played.obs[name]) for name in (ACHIEVED, DESIRED)))
    except Mistake as reason:
        raise Unseen(str(reason)) from reason
    answered = {"reward": played.reward, "discount": played.discount}
    for (name, own), said in zip(answered.items(), map(np.asarray, found), strict=True):
        wrong = (np.abs(said - own) > 1e-4 * (1.0 + np.abs(own))) & played.mask
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            raise Wrong(
                f"step {at[0]} answered with {name} {own[at]:.6g} where the judge says "
                f"{said[at]:.6g} of the same goals",
                "let both say the same: reward and end of a step by what is achieved and desired",
            )
    reached = len(np.unique(played.reward[played.mask])) > 1
    return "" if reached else "note: all steps were rewarded alike"


def _seen(played: Played) -> str:
    if not played.last[:-1].any():
        raise Unseen("no episode ended")
    return ""

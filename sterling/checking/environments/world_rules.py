"""The rules that every world must keep, checked on recorded steps (see ``types.Step``)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import numpy as np
from gymnasium import spaces

from sterling.checking.agent_rules import agent_checks
from sterling.checking.environments.random_play import Trajectory
from sterling.checking.review_findings import Check, CheckFailed, NotChecked
from sterling.envs.hosted.shared_memory import space_leaves
from sterling.problem.action_choices import (
    ACTION_MASK,
    choice_sizes,
    describe_empty_choice,
    without_option,
)
from sterling.problem.agent_axis import ALIVE
from sterling.problem.goal_obs import ACHIEVED, DESIRED
from sterling.problem.observation_values import outside_space
from sterling.types import Mistake, Spec

JUDGE_CHECK = "the judge of goals agrees with the steps' rewards and ends"


def step_checks(spec: Spec, trajectory: Trajectory, code: Any) -> Iterator[Check]:
    """Yield the checks of recorded steps; ``code`` is the function that made the steps."""
    entries = spec.obs.spaces if isinstance(spec.obs, spaces.Dict) else {}
    yield (
        "observations have their space's shape and type",
        partial(_check_shapes, spec, trajectory),
        code,
    )
    yield "observations lie in their space", partial(_check_in_space, spec, trajectory), code
    yield "rewards are finite", partial(_check_rewards, trajectory), code
    yield "episodes end", partial(_check_episodes_end, trajectory), code
    yield (
        "the step after an episode's last step resets and is masked",
        partial(_check_resets, trajectory),
        code,
    )
    yield (
        "discount is 0 at ends only, and within [-1, 1]",
        partial(_check_discounts, trajectory),
        code,
    )
    yield (
        "the final observation of an episode is shown",
        partial(_check_final_observation, trajectory),
        code,
    )
    if spec.judge is not None:
        yield JUDGE_CHECK, partial(_check_judge, spec, trajectory), code
    if spec.agents is not None:
        yield from agent_checks(spec, trajectory, code)
    if ACTION_MASK in entries:
        who = "agent that is there" if spec.agents is not None else "choice"
        rule = f"every {who} has an allowed action"
        yield rule, partial(_check_action_masks, spec, trajectory), code


def _observation_parts(spec: Spec, obs: Any) -> Iterator[tuple[str, Any, np.ndarray]]:
    """Yield the leaves of observations: name, space, values."""
    for (path, space), values in zip(space_leaves(spec.obs), jax.tree.leaves(obs), strict=True):
        yield "".join(f"[{key!r}]" for key in path), space, values


def _check_shapes(spec: Spec, trajectory: Trajectory) -> str:
    for when, obs, axes in (("reset", trajectory.first, 2), ("step", trajectory.obs, 3)):
        for name, space, values in _observation_parts(spec, obs):
            wanted = space.shape or ()
            if values.shape[axes:] != wanted:
                raise CheckFailed(
                    f"{when} returns observation{name} of shape {values.shape[axes:]}, "
                    f"but the space says {wanted}"
                )
            if values.dtype.kind != np.dtype(space.dtype).kind:
                raise CheckFailed(
                    f"{when} returns observation{name} of type {values.dtype}, but "
                    f"the space says {space.dtype}",
                    "convert it, or correct the space",
                )
    return ""


def _check_in_space(spec: Spec, trajectory: Trajectory) -> str:
    for when, obs in (("reset", trajectory.first), ("step", trajectory.obs)):
        for name, space, values in _observation_parts(spec, obs):
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise CheckFailed(f"{when} returns NaN or infinity in observation{name}")
            outside = outside_space(space, values)
            if outside.any():
                first = np.argwhere(outside)[0]
                at = tuple(first)
                where = f" at step {first[0]}" if when == "step" else ""
                raise CheckFailed(
                    f"{when} returns {values[at]:.6g} in observation{name}{where}, outside {space}",
                    "widen the space, or clip the observation",
                )
    return ""


def _check_rewards(trajectory: Trajectory) -> str:
    if not np.isfinite(trajectory.reward).all():
        raise CheckFailed("a reward is NaN or infinite", "clip it, or end the episode")
    low, high = trajectory.reward.min(), trajectory.reward.max()
    return f"between {low:.4g} and {high:.4g}"


def _check_episodes_end(trajectory: Trajectory) -> str:
    ended = int(trajectory.last.sum())
    if not ended:
        raise NotChecked(
            f"no episode ended within {len(trajectory.last)} steps, so the rules about ends "
            "were not checked; set --env max_episode_steps=N"
        )
    return f"{ended} did"


def _check_resets(trajectory: Trajectory) -> str:
    after, mask = trajectory.last[:-1], trajectory.mask[1:]
    if not trajectory.mask[0].all():
        raise CheckFailed("the first step after reset is masked", "return mask True in it")
    if (after & mask).any():
        raise CheckFailed(
            "the step after an episode's last step does not reset: its mask is True",
            "after `last`, ignore the next action, reset, and return the first observation with "
            "mask False",
        )
    between = ~mask & ~after
    if between.any():
        raise CheckFailed(
            "a row is masked in the middle of an episode", "mask only the step that resets"
        )
    if (trajectory.last & ~trajectory.mask).any():
        raise CheckFailed(
            "a step that resets has last True", "return last False where mask is False"
        )
    return _require_episode_end(trajectory)


def _check_discounts(trajectory: Trajectory) -> str:
    valid = trajectory.discount[trajectory.mask]
    if (np.abs(valid) > 1.0).any():
        raise CheckFailed(f"a discount is {valid.min():.4g} or {valid.max():.4g}, outside [-1, 1]")
    if ((trajectory.discount == 0.0) & ~trajectory.last & trajectory.mask).any():
        raise CheckFailed(
            "a discount is 0 where the episode continues",
            "return last True in a step that ends an episode",
        )
    _require_episode_end(trajectory)
    ended = (trajectory.discount == 0.0) & trajectory.last
    return f"{int(ended.sum())} ended, {int((trajectory.last & ~ended).sum())} were truncated"


def _check_final_observation(trajectory: Trajectory) -> str:
    """Check that final observations are not the first observations of the next episodes, unless all
    observations are equal."""
    _require_episode_end(trajectory)
    ends = trajectory.last[:-1]
    obs, next_obs = (
        [x[:-1][ends] for x in jax.tree.leaves(trajectory.obs)],
        [x[1:][ends] for x in jax.tree.leaves(trajectory.obs)],
    )
    moving = any(
        (x[1:][trajectory.mask[1:]] != x[:-1][trajectory.mask[1:]]).any()
        for x in jax.tree.leaves(trajectory.obs)
    )
    if not moving:
        raise NotChecked("observations never change within an episode")
    if all(np.array_equal(x, y) for x, y in zip(obs, next_obs, strict=True)):
        raise CheckFailed(
            "at every end the observation is the first one of the next episode, so the state in "
            "which the episode ended is never observed",
            "return the observation that the last action led to; the next step resets",
        )
    return ""


def _check_judge(spec: Spec, trajectory: Trajectory) -> str:
    """Check that the judge of goals gives every step's reward and discount."""
    judge: Any = spec.judge
    try:
        of_rows = jax.jit(jax.vmap(jax.vmap(jax.vmap(judge))))
        judged = of_rows(*(jax.numpy.asarray(trajectory.obs[name]) for name in (ACHIEVED, DESIRED)))
    except Mistake as reason:
        raise NotChecked(str(reason)) from reason
    returned = {"reward": trajectory.reward, "discount": trajectory.discount}
    for (name, own), said in zip(returned.items(), map(np.asarray, judged), strict=True):
        wrong = (np.abs(said - own) > 1e-4 * (1.0 + np.abs(own))) & trajectory.mask
        if wrong.any():
            at = tuple(np.argwhere(wrong)[0])
            raise CheckFailed(
                f"step {at[0]} returned {name} {own[at]:.6g}, but the judge says {said[at]:.6g} "
                "for the same goals",
                "compute a step's reward and end from its achieved and desired goals alone",
            )
    reached = len(np.unique(trajectory.reward[trajectory.mask])) > 1
    return "" if reached else "note: all steps had the same reward"


def _check_action_masks(spec: Spec, trajectory: Trajectory) -> str:
    for when, obs in (("reset", trajectory.first), ("step", trajectory.obs)):
        mask = obs[ACTION_MASK]
        sizes = mask.shape[-1:] if spec.agents is not None else choice_sizes(spec.action)
        empty = without_option(mask, sizes)  # (..., choice)
        if ALIVE in obs:
            empty &= obs[ALIVE].astype(bool)[..., None]
        if when == "step":  # after the last step of an episode nobody acts
            last = trajectory.last
            empty &= ~last.reshape(last.shape + (1,) * (empty.ndim - last.ndim))
        if empty.any():
            at = np.argwhere(empty)[0].tolist()
            whose = f" to agent {spec.agents.names[at[-2]]}" if spec.agents is not None else ""
            number = f"step {at[0]}" if when == "step" else when
            raise CheckFailed(
                f"after {number} {describe_empty_choice(at[-1], sizes)}{whose}",
                "where nothing is to be chosen, allow one option, such as doing nothing",
            )
    return ""


def _require_episode_end(trajectory: Trajectory) -> str:
    if not trajectory.last[:-1].any():
        raise NotChecked("no episode ended")
    return ""

"""Find choices that an action mask leaves without an option where an action must be chosen. Worlds
that are stepped in Python refuse them (``envs/hosted/reported_masks.py``); compiled programs cannot
raise an error, so they report one number."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Bool, Int

from sterling.equations.factored_values import split_choices
from sterling.problem.action_choices import ACTION_MASK, choice_sizes, describe_empty_choice
from sterling.problem.agent_axis import ALIVE
from sterling.types import Obs, Spec


def has_mask(spec: Spec) -> bool:
    """Whether a problem's observations have an action mask."""
    return isinstance(spec.obs, spaces.Dict) and ACTION_MASK in spec.obs.spaces


def find_empty_choice(spec: Spec, obs: Obs, last: Bool[Array, "seed env"]) -> Int[Array, "seed"]:
    """Return 1 + the index of a choice without an option, in observations ``(seed, env, ...)`` that
    are not the last of their episode; 0 if there is none."""
    parts = split_choices(obs[ACTION_MASK].astype(bool), _row_sizes(spec))
    empty = jnp.stack([~part.any(-1) for part in parts], -1)  # (seed, env, [agent,] choice)
    if ALIVE in obs:
        empty = empty & obs[ALIVE].astype(bool)[..., None]
    empty = empty & ~last.reshape(*last.shape, *(1,) * (empty.ndim - last.ndim))
    numbers = jnp.where(empty, jnp.arange(1, empty.shape[-1] + 1, dtype=jnp.int32), 0)
    return numbers.max(tuple(range(1, empty.ndim)))


def empty_choice_notice(source: Any, tally: Any, name: str, step: int) -> str:
    """Return a line about the choice that a source's ``tally`` names; "" if there is none."""
    found = getattr(tally, "empty_choice", None)
    if found is None or not found.any():
        return ""
    spec = next(world.spec for world in source.worlds if has_mask(world.spec))
    said = describe_empty_choice(int(found.max()) - 1, _row_sizes(spec))
    return (
        f"Environment {name}: before step {step:,} {said} where an action must be chosen; all its "
        "options count as allowed there. Allow at least one, or end the episode."
    )


def _row_sizes(spec: Spec) -> tuple[int, ...]:
    """Return the numbers of options of the choices of one row of the mask."""
    sizes = choice_sizes(spec.action)
    return sizes if spec.agents is None else sizes[: len(sizes) // len(spec.agents)]

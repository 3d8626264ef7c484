"""Critic-only observations: entries of a dict observation that policies do not get.

``Spec.unseen`` names them. The most common is ``state``, the whole state of a world of several
agents, which has no agent axis. A world returns them like any other entry, so code that stores or
moves observations needs no special case. They are removed in one place, a wrapper around the
algorithm (``training/blinded_algorithm.py``). An algorithm whose critic always uses them has
``uses_unseen = True``; one whose critic uses them on request (``Spec.critic_sees``) has
``can_use_unseen = True``.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from gymnasium import spaces

from sterling.problem.action_choices import ACTION_MASK
from sterling.system.mistake import Mistake

STATE = "state"  # the usual name
ALWAYS_SEEN = (ACTION_MASK, "alive", "truncated")  # entries that policies must see


def check_unseen(names: Any, space: spaces.Space[Any]) -> tuple[str, ...]:
    """Return ``names`` as a tuple. Raise Mistake if one is not an entry of the dict observation
    ``space``, or if no entry would be left for policies."""

    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise Mistake(
            f"unseen={names!r} is not a tuple of names. Write for instance unseen=('state',)."
        )
    found = tuple(names)
    entries = set(space.spaces) if isinstance(space, spaces.Dict) else set()
    for name in found:
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none, because it is not a Dict"
            raise Mistake(f"unseen={name!r} is not an entry of the observation. It has {known}.")
        if name in ALWAYS_SEEN:
            raise Mistake(f"unseen={name!r}: policies need this entry. Leave it out of unseen.")
    if found and not entries - {*found, *ALWAYS_SEEN}:
        raise Mistake(f"unseen={found} leaves policies no entry to observe. Name fewer entries.")
    return found


def without_entries(obs: Any, names: tuple[str, ...]) -> Any:
    """Return observations without the entries ``names``; names that are absent are ignored."""
    if not names or not isinstance(obs, dict):
        return obs
    return {name: x for name, x in obs.items() if name not in names}


def space_without(space: spaces.Space[Any], names: tuple[str, ...]) -> spaces.Space[Any]:
    """Return the observation space without the entries ``names``."""
    if not names or not isinstance(space, spaces.Dict):
        return space
    return spaces.Dict({name: part for name, part in space.spaces.items() if name not in names})


def with_critic_obs(spec: Any, critic_obs: str, obs: str) -> Any:
    """Return the problem (:class:`sterling.types.Spec`) in which policies see less.

    ``critic_obs``: names of entries, joined by commas, that only critics get. ``obs``: names of the
    only entries that policies get. "" changes nothing. Raise Mistake for unknown names, and if both
    are given.
    """
    if not (critic_obs or obs):
        return spec
    if critic_obs and obs:
        raise Mistake("obs and critic_obs say the same in two ways. Give one of them.")
    names = tuple(name.strip() for name in (critic_obs or obs).split(","))
    check_unseen([name for name in names if critic_obs], spec.obs)
    if obs:
        entries = check_seen(names, spec.obs)
        names = tuple(sorted(entries - {*names, *ALWAYS_SEEN}))
    return dataclasses.replace(
        spec, unseen=tuple(dict.fromkeys([*spec.unseen, *names])), critic_sees=True
    )


def check_seen(names: tuple[str, ...], space: spaces.Space[Any]) -> set[str]:
    """Return the entries of the dict observation ``space``; raise Mistake if it lacks a name."""
    entries = set(space.spaces) if isinstance(space, spaces.Dict) else set()
    for name in names:
        if name not in entries:
            known = ", ".join(sorted(entries)) or "none, because it is not a Dict"
            raise Mistake(f"obs={name!r} is not an entry of the observation. It has {known}.")
    return entries


def spec_without_unseen(spec: Any) -> Any:
    """Return the problem (:class:`sterling.types.Spec`) without its unseen entries."""
    if not spec.unseen:
        return spec
    log, names = spec.log, spec.unseen
    if log is not None:
        moments = {
            each: without_entries(getattr(log, each), names) for each in ("obs_mean", "obs_std")
        }
        log = dataclasses.replace(log, **moments)
    return dataclasses.replace(spec, obs=space_without(spec.obs, names), log=log, unseen=())

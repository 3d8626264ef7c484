"""Which of the numbers that a world reports beside rewards an agent with a memory acts by: whoever
lets it act elsewhere must pass them on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling import random_keys
from sterling.actor import Actor
from sterling.experience import acting
from sterling.types import Mistake, Spec


def channels_read(agent: Actor, spec: Spec, seeds: int = 1) -> tuple[str, ...]:
    """Return the names of the channels that an agent of so many ``seeds`` acts by."""
    keys = random_keys.for_seeds(jnp.zeros(seeds, jnp.int32), "policy-memory", 0)
    past = acting.initial_past(agent, spec, (seeds, 1), keys)
    if past is None or not past.channels:
        return ()
    obs = jax.tree.map(lambda x: np.stack([np.asarray(x)[None]] * seeds), spec.obs.sample())
    return acting.read_channels(agent, past, obs, keys)


def check_reads_no_channels(agent: Actor, spec: Spec, name: str) -> None:
    """Raise :class:`Mistake` if the agent ``name`` acts by channels: a file or server of its policy
    is not told them."""
    if read := channels_read(agent, spec):
        raise Mistake(
            f"{name} acts by what its world reports beside rewards ({', '.join(read)}), which only "
            "run.player() passes on."
        )


def all_channels(
    spec: Spec, read: Collection[str], given: Mapping[str, Any], name: str
) -> dict[str, np.ndarray]:
    """Return every channel of the world for one env of one seed: those ``given``, others 0. Raise
    :class:`Mistake` if the agent ``name`` acts by one that is not given, or for an unknown one."""
    lacking = [each for each in read if each not in given]
    if lacking:
        said = ", ".join(f'"{each}": ...' for each in lacking)
        raise Mistake(
            f"{name} acts by what its world reports beside rewards. Pass it on: "
            f"player.notice(reward, last, {{{said}}})."
        )
    unknown = [each for each in given if each not in spec.channels]
    if unknown:
        known = ", ".join(spec.channels) or "none"
        raise Mistake(f"the world reports no {unknown[0]!r}; its channels are {known}.")
    return {
        each: np.broadcast_to(np.float32(given.get(each, 0.0)), (1, 1, *channel.shape))
        for each, channel in spec.channels.items()
    }

"""What sources share that stand around a rollout, inside a replay if there is one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from sterling import keys as named
from sterling.actor import Actor, Past
from sterling.experience.draws import Ready, Wrapped
from sterling.experience.rollout import Rollout
from sterling.types import Obs, Record, World


class Around(Wrapped):
    """Of a source around a rollout: whatever it does not say itself is the rollout's."""

    source: Rollout

    @property
    def world(self) -> World:
        """The world that experience comes from."""
        return self.source.world

    @property
    def length(self) -> int:
        """Steps lived at a time."""
        return self.source.length

    @property
    def obs(self) -> Obs:
        """What the agent sees now."""
        return self.source.obs

    @property
    def past(self) -> Past | None:
        """Of an actor that remembers."""
        return self.source.past

    @property
    def recorded(self) -> dict[str, Array]:
        """What is recorded beside the actor's extras and the world's channels."""
        return {}

    def lasting(self, length: int) -> Any:
        """The same, living so many steps at a time."""
        return self._around(self.source.lasting(length))

    def collect(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Any, Ready]:
        """Act for ``length`` steps: one batch is all of them."""
        source, rows = self.live(agent, keys)
        return source, Ready(rows)

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Any, Record]:
        """Act for ``length`` steps."""
        source, rows = self.source.live(agent, keys)
        return self._around(source), rows


class Stepwise(Around):
    """Of a source that lives its rollout step by step, and does something before each of them, such
    as saying where its next episode begins: ``_step(agent, keys)`` is one step of every env, a row
    of leaves ``(seed, env, ...)``; ``source`` lives one at a time there."""

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Any, Record]:
        """Act for ``length`` steps."""

        def step(source: Any, time: Int[Array, ""]) -> tuple[Any, Record]:
            return source._step(agent, named.fold_each(keys, "step", time))

        times = jnp.arange(self.length, dtype=jnp.int32)
        if self.traced:
            source, rows = jax.lax.scan(step, self.lasting(1), times)
        else:
            source, rows = _on_host(step, self.lasting(1), times)
        rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
        return source.lasting(self.length), dataclasses.replace(rows, start=self.past)


def _on_host(
    step: Callable[[Any, Int[Array, ""]], tuple[Any, Record]],
    source: Any,
    times: Int[Array, "time"],
) -> tuple[Any, Record]:
    """What a scan does, in a world that is no program; rows ``(time, seed, env, ...)``."""
    rows = []
    for time in times:
        source, row = step(source, time)
        rows.append(row)
    return source, jax.tree.map(lambda *each: jnp.stack(each), *rows)


def lived(source: Rollout, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Rollout, Record]:
    """One step of every env, as a row without an axis of time."""
    after, rows = source.live(agent, keys)
    return after, jax.tree.map(lambda x: x[:, 0], dataclasses.replace(rows, start=None))

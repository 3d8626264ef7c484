"""Base classes of sources that wrap a rollout, inside a replay buffer if there is one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from sterling import random_keys as named
from sterling.actor import Actor, Past
from sterling.experience.batch_draws import Due, PreparedBatches, SourceWrapper, every_feed
from sterling.experience.rollouts.rollout import Rollout
from sterling.types import Obs, Record, World


class Around(SourceWrapper):
    """Base class of sources that wrap a rollout, to which everything not overridden is
    forwarded."""

    source: Rollout

    @property
    def world(self) -> World:
        """Return the world that experience comes from."""
        return self.source.world

    @property
    def length(self) -> int:
        """Return the number of steps per rollout."""
        return self.source.length

    @property
    def obs(self) -> Obs:
        """Return the current observations."""
        return self.source.obs

    @property
    def past(self) -> Past | None:
        """Return the actor's past; None without a memory."""
        return self.source.past

    @property
    def recorded(self) -> dict[str, Array]:
        """Return the extras that this source adds to those of the actor and the world."""
        return {}

    def with_length(self, length: int) -> Any:
        """Return the source with another number of steps per rollout."""
        return self._around(self.source.with_length(length))

    def collect(
        self, agent: Actor, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Any, PreparedBatches]:
        """Act for ``length`` steps; all rows form one batch."""
        source, rows = self.live(agent, keys)
        return source, PreparedBatches(rows)

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Any, Record]:
        """Act for ``length`` steps in every env."""
        source, rows = self.source.live(agent, keys)
        return self._around(source), rows


class Stepwise(Around):
    """Base class of sources that do something before each step, such as choosing where the next
    episode begins.

    ``_step(agent, keys)`` takes one step in every env and returns a row with leaves ``(seed, env,
    ...)``; inside it ``source`` has length 1.
    """

    def live(self, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Any, Record]:
        """Act for ``length`` steps in every env."""

        def step(source: Any, time: Int[Array, ""]) -> tuple[Any, Record]:
            return source._step(agent, named.fold_each(keys, "step", time))

        times = jnp.arange(self.length, dtype=jnp.int32)
        if self.traced:
            source, rows = jax.lax.scan(step, self.with_length(1), times)
        else:
            source, rows = _scan_on_host(step, self.with_length(1), times)
        rows = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), rows)
        return source.with_length(self.length), dataclasses.replace(rows, start=self.past)


def _scan_on_host(
    step: Callable[[Any, Int[Array, ""]], tuple[Any, Record]],
    source: Any,
    times: Int[Array, "time"],
) -> tuple[Any, Record]:
    """Run a scan step by step on the host; rows are ``(time, seed, env, ...)``."""
    rows = []
    for time in times:
        source, row = step(source, time)
        rows.append(row)
    return source, jax.tree.map(lambda *each: jnp.stack(each), *rows)


def act_one_step(source: Rollout, agent: Actor, keys: Key[Array, "seed"]) -> tuple[Rollout, Record]:
    """Take one step in every env; return a row without a time axis."""
    after, rows = source.live(agent, keys)
    return after, jax.tree.map(lambda x: x[:, 0], dataclasses.replace(rows, start=None))

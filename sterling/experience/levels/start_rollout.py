"""Rollouts whose episodes begin where a chooser says, which hears how they went: curricula of a
user's own.

    LAYER = Layer("mine", "what it does", rollouts=chosen_by(Mine.create), begins=True)

in a file, and ``--sources FILE.py`` begins every training episode where ``Mine`` draws.
``Mine.create(key, task, config)`` makes one for each seed, with the layer's options.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, Self, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys as named
from sterling.envs.episode_starts import Start, require_startable
from sterling.envs.traced_world import tree_where
from sterling.experience.levels.one_level import task_of
from sterling.experience.rollouts.rollout import Rollout
from sterling.experience.rollouts.rollout_wrapper import Stepwise, act_one_step
from sterling.seed_axis import over_seeds
from sterling.types import Mistake, Record

BEGUN_IN, EARNED = "begun_in", "earned"  # extras inside a rollout, for the chooser alone


@runtime_checkable
class Chooser(Protocol):
    """Where the next episodes of one seed begin: an immutable tree of arrays."""

    def draw(self, key: Key[Array, ""], envs: int) -> Start:
        """Return a start for every env, leaves ``(env, ...)``; called when some env needs one."""

    def heard(self, rows: Record, starts: Start, returns: Float[Array, "time env"]) -> Self:
        """Return the chooser that has heard an iteration's rows ``(time, env, ...)``.

        ``starts`` says where the episode of each row began, ``returns`` the sum of its rewards up
        to the row. An episode ends where ``rows.last & rows.mask``.
        """


MakeChooser = Callable[[Key[Array, ""], Any, Any], Chooser]  # of a key, a task and options


class StartRollout(Stepwise, eqx.Module):
    """A rollout whose episodes begin where ``chooser`` says.

    An env's next start is drawn when its episode begins, so a chooser that is slow to draw costs
    nothing in other steps.
    """

    source: Rollout
    chooser: Any  # a Chooser, leaves ``(seed, ...)``
    now: Start  # in which the env's episode began, leaves ``(seed, env, ...)``
    following: Start  # in which its next one begins
    due: Bool[Array, "seed env"]  # where an episode has just begun: another start must be drawn
    earned: Float[Array, "seed env"]  # the sum of the episode's rewards so far

    @classmethod
    def create(
        cls, source: Rollout, keys: Key[Array, "seed"], make: MakeChooser, config: Any
    ) -> StartRollout:
        """Create the source with ``make(key, task, config)`` as the chooser of each seed; the first
        row is masked. Raises Mistake if the world's episodes cannot begin in what it draws."""
        world, shape = source.world, (source.world.seeds, source.world.spec.envs)
        startable, task = require_startable(world), task_of(world)
        own = named.fold_each(keys, "chooser")
        chooser = over_seeds("map", lambda key: make(key, task, config))(own)
        if not isinstance(chooser, Chooser):
            raise Mistake(
                f"{type(chooser).__name__} does not choose starts. Give it draw(key, envs) and "
                "heard(rows, starts, returns) (docs/levels.md)."
            )
        first = _drawn(chooser, named.fold_each(keys, "start"), shape[1])
        every = jnp.ones(shape, bool)
        begun = startable.assign_start(source.state, first, every, now=True)
        source = dataclasses.replace(source, state=begun)
        return cls(source, chooser, first, first, ~every, jnp.zeros(shape))

    def live(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[StartRollout, Record]:
        """Act for ``length`` steps in every env; then the chooser hears of them."""
        after, rows = super().live(agent, keys)
        extras = dict(rows.extras)
        starts, returns = extras.pop(BEGUN_IN), extras.pop(EARNED)
        rows = dataclasses.replace(rows, extras=extras)

        def hear(chooser: Chooser, rows: Record, starts: Start, returns: Array) -> Chooser:
            return chooser.heard(rows, starts, returns)

        # learned rows alone: what acting remembered before them is not the chooser's
        told = dataclasses.replace(rows, start=None)
        chooser = over_seeds("map", hear)(after.chooser, told, starts, returns)
        return dataclasses.replace(after, chooser=chooser), rows

    def _step(self, agent: Any, keys: Key[Array, "seed"]) -> tuple[StartRollout, Record]:
        """Take one step in every env, ``(seed, env, ...)``."""
        own, envs = named.fold_each(keys, "start"), self.due.shape[1]
        following = jax.lax.cond(
            jnp.any(self.due),
            lambda old: tree_where(self.due, _drawn(self.chooser, own, envs), old),
            lambda old: old,
            self.following,
        )
        begin = require_startable(self.world).assign_start
        state = begin(self.source.state, following, self.due)
        after, row = act_one_step(dataclasses.replace(self.source, state=state), agent, keys)
        begun = ~row.mask & ~row.last  # rows masked for NaN have last=True
        now = tree_where(begun, following, self.now)
        earned = jnp.where(begun, 0.0, self.earned) + jnp.where(row.mask, row.reward, 0.0)
        extras = {**row.extras, BEGUN_IN: now, EARNED: earned}
        row = dataclasses.replace(row, extras=extras)
        return StartRollout(after, self.chooser, now, following, begun, earned), row


def chosen_by(make: MakeChooser) -> Callable[..., StartRollout]:
    """Return what a :class:`~sterling.experience.source_layers.Layer` does to rollouts so that
    their episodes begin where the chooser ``make(key, task, config)`` of each seed says."""

    def wrap(source: Rollout, config: Any, keys: Key[Array, "seed"], actor: Any) -> StartRollout:
        return StartRollout.create(source, keys, make, config)

    return wrap


def _drawn(chooser: Chooser, keys: Key[Array, "seed"], envs: int) -> Start:
    """Return a start for every env of every seed."""

    def draw(chooser: Chooser, key: Key[Array, ""]) -> Start:
        return chooser.draw(key, envs)

    return over_seeds("map", draw)(chooser, keys)

"""Hindsight experience replay (Andrychowicz 2017, "Hindsight experience replay", arXiv:1707.01495):
relabel failures with a goal that was reached.

    desired'     = what was achieved by row j
    r', discount' = judge(what was achieved by a row, desired')        for every row of a window

``future`` draws j uniformly from this row to its episode's newest, ``final`` is the newest,
``episode`` draws from all rows of the episode, ``random`` from all rows of the replay (section 4.5
of the paper). The paper stores k relabelled rows beside each; here a share of the drawn windows
is relabelled, k / (k + 1): 0.8 for its k = 4, as in the authors' code. Windows are relabelled
before their rewards are summed, and end where the new goal ends the episode.

Deviation from the paper: unfinished episodes are relabelled too, with what they achieved so far.
Episodes whose first row was overwritten are not relabelled.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from sterling import random_keys as named
from sterling.experience.replay.episode_index import EpisodeIndex
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.replay.window_relabelling import WindowRows
from sterling.problem.goal_obs import ACHIEVED, DESIRED, GoalJudge
from sterling.types import Record

KINDS = FUTURE, FINAL, EPISODE, RANDOM = "future", "final", "episode", "random"
SHARE = 0.8  # k = 4


class Hindsight(eqx.Module):
    """Relabels ``share`` of the windows with achieved goals, chosen by ``kind``; a
    :class:`sterling.experience.replay.window_relabelling.Relabeller`."""

    index: EpisodeIndex
    kind: str = eqx.field(static=True)
    share: float = eqx.field(static=True)
    judge: GoalJudge = eqx.field(static=True)

    @classmethod
    def create(cls, ring: Ring, kind: str, share: float, judge: GoalJudge) -> Hindsight:
        """Create the relabeller of an empty ring."""
        return cls(EpisodeIndex.create(ring), kind, share, judge)

    def insert(self, ring: Ring, record: Record) -> Hindsight:
        """Return the relabeller with rows that are about to be added to ``ring``."""
        return self._with(self.index.insert(ring, record))

    def presample(
        self, keys: Key[Array, "seed"], shape: tuple[int, int]
    ) -> Float[Array, "seed update batch chances"]:
        """Draw whether each window is relabelled, and from which row; if ``random``, of which
        env."""
        own = named.fold_each(keys, "relabel")
        chances = 3 if self.kind == RANDOM else 2
        return jax.vmap(lambda key: jax.random.uniform(key, (*shape, chances)))(own)

    def relabel_windows(
        self, ring: Ring, window: Place, rows: WindowRows, chance: Float[Array, "batch chances"]
    ) -> WindowRows:
        """Return the windows' rows as if they had been collected for their new goals."""
        place = Place(*(jnp.broadcast_to(x, window.row.shape)[..., 0] for x in window))
        source, is_known = self._source(ring, place, chance)
        chosen = (chance[..., 0] < self.share) & is_known
        # a row's achieved goal is in its next observation
        goal = ring.obs(source._replace(row=jnp.mod(source.row + 1, ring.rows)))[ACHIEVED]
        wide = chosen.reshape(*chosen.shape, *(1,) * (goal.ndim - chosen.ndim))
        goal = jnp.where(wide, goal, ring.obs(place)[DESIRED])
        after = window._replace(row=jnp.mod(window.row + 1, ring.rows))
        of_row = jax.vmap(jax.vmap(self.judge, (0, None)))
        reward, discount = of_row(ring.obs(after)[ACHIEVED], goal)
        anew = chosen[..., None]
        return WindowRows(
            jnp.where(anew, reward.astype(jnp.float32), rows.reward),
            jnp.where(anew, discount.astype(jnp.float32), rows.discount),
            rows.last | (anew & (discount == 0.0)),
            {**rows.seen, DESIRED: goal},
        )

    def _source(
        self, ring: Ring, place: Place, chance: Float[Array, "batch chances"]
    ) -> tuple[Place, Bool[Array, "batch"]]:
        """Return the rows whose achieved goals replace those of ``place``, and where there is
        one."""

        def drawn(number: int, count: Array | int) -> Array:
            scaled = chance[..., number] * jnp.asarray(count, jnp.float32)
            return jnp.minimum(jnp.floor(scaled).astype(jnp.int32), count - 1)

        if self.kind == RANDOM:
            held = jnp.minimum(ring.count, ring.rows - 1)
            row = jnp.mod(ring.head - held + drawn(1, held), ring.rows)
            env = drawn(2, ring.words.shape[2])
            return place._replace(row=row, env=env), ring.mask(place)
        elapsed, length = self.index.lookup(ring, place)
        left = length - elapsed  # rows of the episode from this one on; 0: unknown
        ahead = {FUTURE: drawn(1, left), FINAL: left - 1, EPISODE: drawn(1, length) - elapsed}
        row = jnp.mod(place.row + ahead[self.kind], ring.rows)
        return place._replace(row=row), left > 0

    def shapes_with_capacity(self, rows: int) -> Hindsight:
        """Return shapes and dtypes at a capacity of ``rows``."""
        return self._with(self.index.shapes_with_capacity(rows))

    def with_capacity(self, ring: Ring, rows: int) -> Hindsight:
        """Return the relabeller after ``ring`` grows to a capacity of ``rows``."""
        return self._with(self.index.with_capacity(ring, rows))

    def _with(self, index: EpisodeIndex) -> Hindsight:
        return Hindsight(index, self.kind, self.share, self.judge)

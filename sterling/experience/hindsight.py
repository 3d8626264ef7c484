"""Hindsight experience replay (Andrychowicz 2017, "Hindsight experience replay", arXiv:1707.01495):
what was reached is taken for what was wanted, so that failures teach too.

    desired'     = what was achieved by row j of the same episode,     j >= this row
    r', discount' = judge(what was achieved by a row, desired')        for every row of a window

``future`` draws j uniformly from this row to the episode's newest, ``final`` is the newest (section
4.5 of the paper). The paper stores k relabelled rows beside each; here a share of what is drawn is
relabelled, k / (k + 1): 0.8 for its k = 4, as the authors' code does. Windows are relabelled before
their rewards are summed, and end where the new goal ends them.

Deviation from the paper: episodes that still go on are relabelled too, by what they achieved so
far. Those whose first row is overwritten are left as they are.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import keys as named
from sterling.experience.episode_index import EpisodeIndex
from sterling.experience.relabelling import Rows
from sterling.experience.storage import Place, Ring
from sterling.goals import ACHIEVED, DESIRED, Judge
from sterling.types import Record

FUTURE, FINAL = "future", "final"
SHARE = 0.8  # k = 4


class Hindsight(eqx.Module):
    """Goals of ``share`` of the windows are others, by ``kind``; a
    :class:`sterling.experience.relabelling.Relabel`."""

    index: EpisodeIndex
    kind: str = eqx.field(static=True)
    share: float = eqx.field(static=True)
    judge: Judge = eqx.field(static=True)

    @classmethod
    def create(cls, ring: Ring, kind: str, share: float, judge: Judge) -> Hindsight:
        """For a ring that is empty."""
        return cls(EpisodeIndex.create(ring), kind, share, judge)

    def insert(self, ring: Ring, record: Record) -> Hindsight:
        """Knowing of rows that ``ring`` is to be given next."""
        return self._with(self.index.insert(ring, record))

    def chances(
        self, keys: Key[Array, "seed"], shape: tuple[int, int]
    ) -> Float[Array, "seed update batch two"]:
        """Whether a window is relabelled, and by which row."""
        own = named.fold_each(keys, "relabel")
        return jax.vmap(lambda key: jax.random.uniform(key, (*shape, 2)))(own)

    def relabelled(
        self, ring: Ring, window: Place, rows: Rows, chance: Float[Array, "batch two"]
    ) -> Rows:
        """The windows as if they had been lived for their new goals."""
        place = Place(*(jnp.broadcast_to(x, window.row.shape)[..., 0] for x in window))
        elapsed, length = self.index.lookup(ring, place)
        left = length - elapsed  # rows of the episode from this one on; 0: it is not known
        which = left - 1
        if self.kind == FUTURE:
            drawn = jnp.floor(chance[..., 1] * left.astype(jnp.float32)).astype(jnp.int32)
            which = jnp.minimum(drawn, which)
        chosen = (chance[..., 0] < self.share) & (left > 0)
        ahead = jnp.where(chosen, which + 1, 0)  # what a row achieved is seen in its successor
        goal = ring.obs(place.at(jnp.mod(place.row + ahead, ring.rows)))[ACHIEVED]
        wide = chosen.reshape(*chosen.shape, *(1,) * (goal.ndim - chosen.ndim))
        goal = jnp.where(wide, goal, ring.obs(place)[DESIRED])
        after = window._replace(row=jnp.mod(window.row + 1, ring.rows))
        of_row = jax.vmap(jax.vmap(self.judge, (0, None)))
        reward, discount = of_row(ring.obs(after)[ACHIEVED], goal)
        anew = chosen[..., None]
        return Rows(
            jnp.where(anew, reward.astype(jnp.float32), rows.reward),
            jnp.where(anew, discount.astype(jnp.float32), rows.discount),
            rows.last | (anew & (discount == 0.0)),
            {**rows.seen, DESIRED: goal},
        )

    def shaped(self, rows: int) -> Hindsight:
        """Shapes and types beside a ring with room for ``rows``."""
        return self._with(self.index.shaped(rows))

    def grown(self, ring: Ring, rows: int) -> Hindsight:
        """Once ``ring`` has room for ``rows``."""
        return self._with(self.index.grown(ring, rows))

    def _with(self, index: EpisodeIndex) -> Hindsight:
        return Hindsight(index, self.kind, self.share, self.judge)

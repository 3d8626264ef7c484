"""Sums over finished episodes, from which a run's metrics are computed."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sterling.experience.rollouts.empty_choices import has_mask
from sterling.problem.channels import Channel, channel_columns
from sterling.types import World


class Tally(eqx.Module):
    """Sums over the episodes that finished since the last reset of the tally, per seed."""

    totals: dict[str, Float[Array, "seed"]]  # by column: "return", "length", and the channels'
    episodes: Int[Array, "seed"]
    invalid: Int[Array, "seed"]  # episodes interrupted because the world crashed or returned NaN
    # 1 + the index of a choice that an action mask left without an option (``empty_choices.py``),
    # 0 without one; None if there are no masks
    empty_choice: Int[Array, "seed"] | None = None

    returns = property(lambda self: self.totals["return"], doc="Sum of all returns.")
    lengths = property(lambda self: self.totals["length"], doc="Sum of all lengths.")

    @classmethod
    def empty(
        cls, seeds: int, channels: dict[str, Channel] | None = None, masked: bool = False
    ) -> Tally:
        """Create an empty tally, without compiling a program, because every row of metrics needs
        one; ``masked``: it notes choices without an option."""
        names = ("return", "length", *channel_columns(channels or {}))
        none, zero = (jnp.asarray(np.zeros(seeds, kind)) for kind in (np.int32, np.float32))
        empty = none.copy() if masked else None
        return cls({name: zero.copy() for name in names}, none, none.copy(), empty)

    @classmethod
    def of_world(cls, world: World) -> Tally:
        """Create an empty tally for a world's seeds, channels and action mask."""
        return cls.empty(world.seeds, world.spec.channels, has_mask(world.spec))

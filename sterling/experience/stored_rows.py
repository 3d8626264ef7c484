"""What learning writes back to the rows that it learned from (``Signals.stored``): search policies
made anew, latents as the newest networks see them."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Int, PyTree

from sterling.needs.feed import PAD, REPLAY
from sterling.types import Feed, Mistake, Record, Signals


class RowsToStore(eqx.Module):
    """New values of kept extras, of all rows of a feed's batches in an iteration."""

    place: Int[Array, "*update batch"]  # numbers of the drawn rows; of sequences the first ones
    mask: Bool[Array, "*update batch ..."]  # which rows are written; where none was made, no row
    values: dict[str, PyTree]  # by the extra's name, leaves ``(update, batch, ...)``


def rows_to_store(feed: Feed, signals: Signals, batch: Record) -> RowsToStore | None:
    """Return what an update writes back to its batch's rows; None for nothing. Raise
    :class:`Mistake` if the feed does not say where its rows are, or if the values are not one for
    each row."""
    if not signals.stored:
        return None
    if feed.of != REPLAY or feed.edge == PAD:
        raise Mistake(
            f"{feed.learner} stores {_names(signals)}, but only rows of a replay can be changed, "
            "and no padded sequences. Leave out stored, or learn from a feed of the replay."
        )
    if "place" not in batch.extras:
        raise Mistake(
            f"{feed.learner} stores {_names(signals)}, but its batches do not say which rows they "
            'are. Add "place" to the feed\'s add.'
        )
    shape = batch.mask.shape
    for name, value in signals.stored.items():
        found = {leaf.shape[: len(shape)] for leaf in jax.tree.leaves(value)}
        if found != {shape}:
            raise Mistake(
                f"{feed.learner} stores {name!r} with the shapes {sorted(found)}. Give a value "
                f"for each of the batch's rows, {shape}."
            )
    return RowsToStore(batch.extras["place"], batch.mask, signals.stored)


def with_stored_rows(source: Any, stored: dict[str, RowsToStore]) -> Any:
    """Return the source with what an iteration's updates stored, by the names of their feeds; the
    last update of a row wins."""
    if not stored:
        return source
    if not hasattr(source, "with_stored_rows"):
        raise Mistake(
            f"learning changes kept extras, but {type(source).__name__} keeps none of its own. "
            "Leave out stored of Signals, or learn from one replay alone."
        )
    return source.with_stored_rows(stored)


def _names(signals: Signals) -> str:
    return ", ".join(map(repr, signals.stored))

"""Pack lines (token sequences) side by side: read a batch without its padding, and shared prompts
once.

Rows of a batch are as long as a line may become; most lines are shorter, and those of a group begin
with the same prompt. Here lines are laid one after another into *packs* of a few rows' length
(Krell 2021, arXiv:2107.02027). Of the lines that answer one prompt, all but the first begin where
they differ from it, and attend to its tokens (Liu 2025, arXiv:2506.05433). A token attends to what
it would attend to in a row of its own, at the same positions, so only rounding and time change.

Lines go into packs in their order, and a new pack begins where a line does not fit. The compiled
program finds the layout from the batch alone: its shapes stay those of the longest lines.
"""

from __future__ import annotations

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from sterling.language.models.causal_lm import LanguageModel
from sterling.nets.attention.segments import Segments

T = TypeVar("T", bound=PyTree)
SHORT_PACK_TOKENS = 256  # in a larger pack, more attention is computed in vain
MAX_FULL_LINES = 8  # that a pack has room for
MIN_PIECES = 4  # that full lines would fill: the last piece is seldom full
SLOTS_PER_FULL_LINE = 8  # a pack has so many slots for each full line it has room for


class TokenRows(eqx.Module):
    """Lines as a model reads them: one in each row, or several of a batch in packs."""

    ids: Int[Array, "pack room"]
    chosen: Int[Array, "pack room"]  # the token that follows each
    at: Int[Array, "#pack room"]  # its position in its line
    segments: Segments  # of each pack: lines, and the prompts they share
    place: Int[Array, "line time"]  # index of its tokens in all packs; past them: none

    @classmethod
    def one_per_row(cls, ids: Int[Array, "line time"]) -> TokenRows:
        """Return a row for each line."""
        count, time = ids.shape
        at = jnp.arange(time, dtype=jnp.int32)[None]
        place = jnp.arange(count * time, dtype=jnp.int32).reshape(count, time)
        return cls(ids, jnp.roll(ids, -1, 1), at, Segments.causal(time), place)

    def hidden(self, model: LanguageModel) -> Float[Array, "pack room width"]:
        """Return the output of the model's last layer."""
        return model.hidden(self.ids, at=self.at, segments=self.segments)

    def log_prob(
        self, model: LanguageModel, temperature: Float[Array, ""] | float = 1.0
    ) -> tuple[Float[Array, "line _"], Float[Array, "line _"]]:
        """Return :meth:`LanguageModel.log_prob` of every line; values past a line's end mean
        nothing."""
        found = model.token_log_probs(self.hidden(model), self.chosen, temperature)
        return self.by_line(found[0])[:, :-1], self.by_line(found[1])[:, :-1]

    def by_line(self, x: Float[Array, "pack room"]) -> Float[Array, "line time"]:
        """Return values of tokens in packs in the order of lines; 0 after a line's end."""
        return x.reshape(-1).at[self.place].get(mode="fill", fill_value=0.0)


class PackedBatch(eqx.Module):
    """The layout of a batch's lines in packs. A *unit* is the number of rows that must be read
    together."""

    ids: Int[Array, "line time"]
    line: Int[Array, "pack most"]  # index of the line in each slot; past the last line: none
    layout: dict[str, Int[Array, "line"]]  # see :func:`_place_lines`, and "length"
    pieces: Int[Array, ""]  # number of pieces that hold all lines
    sizes: tuple[int, int, int] = eqx.field(static=True)  # packs of a piece, tokens of a pack, unit

    @classmethod
    def from_lines(
        cls, ids: Int[Array, "line time"], mask: Bool[Array, "line token"], rows: int, unit: int
    ) -> PackedBatch:
        """Lay out lines up to the last token that ``mask`` marks as chosen; rows without one are
        left out.

        A piece has at most about as many tokens as ``rows`` units of full lines, and a quarter of
        the tokens that all lines would have if they were full.
        """
        count, time = ids.shape
        full = max(
            unit, min(MAX_FULL_LINES, SHORT_PACK_TOKENS // time, rows * unit, count)
        )  # lines of a pack
        most = full * SLOTS_PER_FULL_LINE // unit * unit
        per_piece = max(1, min(rows * unit, -(-count // MIN_PIECES)) // full)
        packs = -(-(count // unit) // per_piece) * per_piece
        at = jnp.arange(1, time, dtype=jnp.int32)[None]
        length = jnp.max(jnp.where(mask, at + 1, 0), 1)
        prompt = jnp.min(jnp.where(mask, at, time), 1)
        layout = _place_lines(ids, length, prompt, (full * time, most, unit))
        slot = jnp.where(layout["pack"] < 0, packs * most, layout["pack"] * most + layout["slot"])
        number = jnp.arange(count, dtype=jnp.int32)
        line = jnp.full(packs * most, count, jnp.int32).at[slot].set(number, mode="drop")
        pieces, sizes = jnp.max(layout["pack"]) // per_piece + 1, (per_piece, full * time, unit)
        return cls(ids, line.reshape(packs, most), layout | {"length": length}, pieces, sizes)

    def which(self, piece: Int[Array, ""]) -> Int[Array, "_"]:
        """Return the indices of a piece's units; past the last unit: none."""
        unit = self.sizes[2]
        return self._line_numbers(piece)[::unit] // unit

    def units(self, rows: T, piece: Int[Array, ""]) -> T:
        """Return a piece's part of ``rows``, whose first axis is of units; 0 where there is no
        unit."""
        which = self.which(piece)
        return jax.tree.map(lambda x: _take_rows(x, which), rows)

    def read(self, piece: Int[Array, ""]) -> TokenRows:
        """Return the lines of a piece, laid out in packs."""
        per_piece, room, _ = self.sizes
        which, (most, time) = self._line_numbers(piece), (self.line.shape[1], self.ids.shape[1])
        ids, layout = (
            _take_rows(self.ids, which),
            {k: _take_rows(x, which) for k, x in self.layout.items()},
        )
        row = jnp.arange(which.size, dtype=jnp.int32) // most
        first = row * most + layout["first"]
        begin, shared = layout["begin"][:, None], layout["shared"][:, None]
        t = jnp.arange(time, dtype=jnp.int32)[None]
        column = jnp.where(t < shared, begin[first] + t, begin + t - shared)
        nowhere = per_piece * room
        place = jnp.where(t < layout["length"][:, None], row[:, None] * room + column, nowhere)
        own = jnp.where(t >= shared, place, nowhere)
        number = jnp.arange(ids.size, dtype=jnp.int32).reshape(ids.shape)
        source = jnp.full(nowhere, -1, jnp.int32).at[own].set(number, mode="drop")
        source = source.reshape(per_piece, room)
        line, at = source // time, source % time  # -1 where there is no token
        itself, prefix = jnp.arange(room, dtype=jnp.int32)[None], layout["begin"][first[line]]
        segments = Segments(
            jnp.where(source < 0, itself, layout["begin"][line]),
            prefix,
            jnp.where(source < 0, 0, prefix + layout["shared"][line]),
        )
        after = jnp.roll(ids, -1, 1)
        return TokenRows(ids.reshape(-1)[source], after.reshape(-1)[source], at, segments, place)

    def _line_numbers(self, piece: Int[Array, ""]) -> Int[Array, "slot"]:
        per_piece = self.sizes[0]
        return jax.lax.dynamic_slice_in_dim(self.line, piece * per_piece, per_piece).reshape(-1)


def _take_rows(x: Array, which: Int[Array, "slot"]) -> Array:
    return x.at[which].get(mode="fill", fill_value=0)


def _place_lines(
    ids: Int[Array, "line time"],
    length: Int[Array, "line"],
    prompt: Int[Array, "line"],
    sizes: tuple[int, int, int],
) -> dict[str, Int[Array, "line"]]:
    """Return the layout of every line: its "pack" and "slot" (pack -1: its unit has no tokens), the
    column where it begins ("begin"), how many of its tokens are "shared", and the slot of the line
    it shares them with ("first").

    ``sizes``: tokens of a pack, slots of a pack, and lines of a unit.
    """
    room, most, unit = sizes
    count, zero = ids.shape[0], jnp.zeros((), jnp.int32)

    def add(state: dict[str, Array], line: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        leader = state["leader"]
        common = jnp.cumprod((ids[leader] == ids[line]).astype(jnp.int32)).sum(dtype=jnp.int32)
        common = jnp.minimum(common, jnp.minimum(length[leader], length[line]))
        same = (state["slot"] > 0) & (common >= prompt[line])
        shared = jnp.where(same, common - 1, 0)  # the token at which they part is each line's own
        first = jnp.where(same, state["first"], state["slot"])
        used = state["used"] + length[line] - shared
        placed = {"pack": state["pack"], "slot": state["slot"], "begin": state["used"]}
        more = {"slot": state["slot"] + 1, "used": used, "leader": jnp.where(same, leader, line)}
        return state | more | {"first": first}, placed | {"first": first, "shared": shared}

    def step(state: dict[str, Array], number: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        rows = number * unit + jnp.arange(unit, dtype=jnp.int32)
        here = jax.lax.scan(add, state, rows)
        fresh = state | {"pack": state["pack"] + 1, "slot": zero, "used": zero}
        fits = (here[0]["used"] <= room) & (here[0]["slot"] <= most)
        after, placed = _select_tree(fits, here, jax.lax.scan(add, fresh, rows))
        has_tokens = jnp.any(length[rows] > 0)
        return _select_tree(has_tokens, after, state), placed | {
            "pack": jnp.where(has_tokens, placed["pack"], -1)
        }

    begin = dict.fromkeys(("pack", "slot", "used", "leader", "first"), zero)
    _, found = jax.lax.scan(step, begin, jnp.arange(count // unit, dtype=jnp.int32))
    return {name: x.reshape(count) for name, x in found.items()}


def _select_tree(which: Bool[Array, ""], one: T, other: T) -> T:
    return jax.tree.map(lambda x, y: jnp.where(which, x, y), one, other)

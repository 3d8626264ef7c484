"""Lines beside one another: a batch is read without its padding, and once what its lines share.

Rows of a batch are as long as a line may become; most lines are shorter, and those of a group begin
alike. Here lines are laid one after another into *packs* of a few rows' length (Krell 2021,
arXiv:2107.02027), and of those that answer one prompt all but the first begin where they part from
it: they look back at its tokens (Liu 2025, arXiv:2506.05433). A token sees what it would see in a
row of its own, at the same positions, so nothing changes but rounding, and time.

Lines go into packs in their order, a new one where a line does not fit. Which go where is found in
the compiled program, from the batch alone: its shapes stay those of the longest lines.
"""

from __future__ import annotations

from typing import TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

from sterling.language.model import LanguageModel

T = TypeVar("T", bound=PyTree)
WIDE = 256  # tokens that a pack has room for, where lines are short: more look at more in vain
ROWS = 8  # full lines that a pack has room for at most
PIECES = 4  # that full lines would fill at least: the last one is seldom full
SHORT = 8  # times as many lines as full ones may lie in a pack


class Lines(eqx.Module):
    """Lines as a model reads them: one in each row, or some of a batch in packs."""

    ids: Int[Array, "pack room"]
    chosen: Int[Array, "pack room"]  # the token that follows each
    at: Int[Array, "#pack room"]  # its position in its line
    allowed: Bool[Array, "#pack room room"]  # what each token sees
    place: Int[Array, "line time"]  # of its tokens, among those of all packs; past these: none

    @classmethod
    def whole(cls, ids: Int[Array, "line time"]) -> Lines:
        """A row for each line."""
        count, time = ids.shape
        at = jnp.arange(time, dtype=jnp.int32)[None]
        place = jnp.arange(count * time, dtype=jnp.int32).reshape(count, time)
        return cls(ids, jnp.roll(ids, -1, 1), at, at[:, :, None] >= at[:, None], place)

    def hidden(self, model: LanguageModel) -> Float[Array, "pack room width"]:
        """What the model's last layer says."""
        return model.hidden(self.ids, at=self.at, allowed=self.allowed)

    def log_prob(
        self, model: LanguageModel, temperature: Float[Array, ""] | float = 1.0
    ) -> tuple[Float[Array, "line _"], Float[Array, "line _"]]:
        """As :meth:`LanguageModel.log_prob`, of every line; past its end it means nothing."""
        found = model.judge(self.hidden(model), self.chosen, temperature)
        return self.by_line(found[0])[:, :-1], self.by_line(found[1])[:, :-1]

    def by_line(self, x: Float[Array, "pack room"]) -> Float[Array, "line time"]:
        """What was found for tokens in packs, in the order of lines; 0 after a line's end."""
        return x.reshape(-1).at[self.place].get(mode="fill", fill_value=0.0)


class Packs(eqx.Module):
    """Where the lines of a batch lie. A *unit* is so many rows as must be read together."""

    ids: Int[Array, "line time"]
    line: Int[Array, "pack most"]  # in each slot of a pack; past the last line: none
    laid: dict[str, Int[Array, "line"]]  # see :func:`_laid`, and "length"
    pieces: Int[Array, ""]  # that hold all lines
    sizes: tuple[int, int, int] = eqx.field(static=True)  # packs of a piece, tokens of one, unit

    @classmethod
    def of(
        cls, ids: Int[Array, "line time"], mask: Bool[Array, "line token"], rows: int, unit: int
    ) -> Packs:
        """Lines up to the last token that ``mask`` says is chosen; rows without one are left out.

        A piece has at most about as many tokens as ``rows`` units of full lines, and a quarter of
        what all lines would have, were they full.
        """
        count, time = ids.shape
        full = max(unit, min(ROWS, WIDE // time, rows * unit, count))  # lines of a pack
        most = full * SHORT // unit * unit
        each = max(1, min(rows * unit, -(-count // PIECES)) // full)
        packs = -(-(count // unit) // each) * each
        at = jnp.arange(1, time, dtype=jnp.int32)[None]
        length = jnp.max(jnp.where(mask, at + 1, 0), 1)
        prompt = jnp.min(jnp.where(mask, at, time), 1)
        laid = _laid(ids, length, prompt, (full * time, most, unit))
        slot = jnp.where(laid["pack"] < 0, packs * most, laid["pack"] * most + laid["slot"])
        number = jnp.arange(count, dtype=jnp.int32)
        line = jnp.full(packs * most, count, jnp.int32).at[slot].set(number, mode="drop")
        pieces, sizes = jnp.max(laid["pack"]) // each + 1, (each, full * time, unit)
        return cls(ids, line.reshape(packs, most), laid | {"length": length}, pieces, sizes)

    def which(self, piece: Int[Array, ""]) -> Int[Array, "_"]:
        """The units of a piece; past the last unit: none."""
        unit = self.sizes[2]
        return self._lines(piece)[::unit] // unit

    def units(self, rows: T, piece: Int[Array, ""]) -> T:
        """What belongs to a piece of rows whose first axis is of units; 0 where there is none."""
        which = self.which(piece)
        return jax.tree.map(lambda x: _taken(x, which), rows)

    def read(self, piece: Int[Array, ""]) -> Lines:
        """The lines of a piece, laid out."""
        each, room, _ = self.sizes
        which, (most, time) = self._lines(piece), (self.line.shape[1], self.ids.shape[1])
        ids, laid = _taken(self.ids, which), {k: _taken(x, which) for k, x in self.laid.items()}
        row = jnp.arange(which.size, dtype=jnp.int32) // most
        first = row * most + laid["first"]
        begin, shared = laid["begin"][:, None], laid["shared"][:, None]
        t = jnp.arange(time, dtype=jnp.int32)[None]
        column = jnp.where(t < shared, begin[first] + t, begin + t - shared)
        nowhere = each * room
        place = jnp.where(t < laid["length"][:, None], row[:, None] * room + column, nowhere)
        own = jnp.where(t >= shared, place, nowhere)
        number = jnp.arange(ids.size, dtype=jnp.int32).reshape(ids.shape)
        source = jnp.full(nowhere, -1, jnp.int32).at[own].set(number, mode="drop")
        source = source.reshape(each, room)
        line, at = source // time, source % time  # -1 where there is no token
        seen = _seen(line, at, first[line], laid["shared"][line])
        after = jnp.roll(ids, -1, 1)
        return Lines(ids.reshape(-1)[source], after.reshape(-1)[source], at, seen, place)

    def _lines(self, piece: Int[Array, ""]) -> Int[Array, "slot"]:
        each = self.sizes[0]
        return jax.lax.dynamic_slice_in_dim(self.line, piece * each, each).reshape(-1)


def _taken(x: Array, which: Int[Array, "slot"]) -> Array:
    return x.at[which].get(mode="fill", fill_value=0)


def _laid(
    ids: Int[Array, "line time"],
    length: Int[Array, "line"],
    prompt: Int[Array, "line"],
    sizes: tuple[int, int, int],
) -> dict[str, Int[Array, "line"]]:
    """The "pack" and "slot" of every line (pack -1: its unit has no tokens), the column where it
    begins ("begin"), how many of its tokens are "shared", and the slot where these are ("first").

    ``sizes``: tokens of a pack, slots of one, and lines of a unit.
    """
    room, most, unit = sizes
    count, zero = ids.shape[0], jnp.zeros((), jnp.int32)

    def add(now: dict[str, Array], line: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        leader = now["leader"]
        alike = jnp.cumprod((ids[leader] == ids[line]).astype(jnp.int32)).sum(dtype=jnp.int32)
        alike = jnp.minimum(alike, jnp.minimum(length[leader], length[line]))
        same = (now["slot"] > 0) & (alike >= prompt[line])
        shared = jnp.where(same, alike - 1, 0)  # the token at which they part is each line's own
        first = jnp.where(same, now["first"], now["slot"])
        used = now["used"] + length[line] - shared
        told = {"pack": now["pack"], "slot": now["slot"], "begin": now["used"]}
        more = {"slot": now["slot"] + 1, "used": used, "leader": jnp.where(same, leader, line)}
        return now | more | {"first": first}, told | {"first": first, "shared": shared}

    def step(now: dict[str, Array], number: Array) -> tuple[dict[str, Array], dict[str, Array]]:
        rows = number * unit + jnp.arange(unit, dtype=jnp.int32)
        here = jax.lax.scan(add, now, rows)
        fresh = now | {"pack": now["pack"] + 1, "slot": zero, "used": zero}
        fits = (here[0]["used"] <= room) & (here[0]["slot"] <= most)
        after, told = _either(fits, here, jax.lax.scan(add, fresh, rows))
        there = jnp.any(length[rows] > 0)
        return _either(there, after, now), told | {"pack": jnp.where(there, told["pack"], -1)}

    begin = dict.fromkeys(("pack", "slot", "used", "leader", "first"), zero)
    _, found = jax.lax.scan(step, begin, jnp.arange(count // unit, dtype=jnp.int32))
    return {name: x.reshape(count) for name, x in found.items()}


def _either(which: Bool[Array, ""], one: T, other: T) -> T:
    return jax.tree.map(lambda x, y: jnp.where(which, x, y), one, other)


def _seen(
    line: Int[Array, "pack room"],
    at: Int[Array, "pack room"],
    first: Int[Array, "pack room"],
    shared: Int[Array, "pack room"],
) -> Bool[Array, "pack room room"]:
    """Whether a token (second axis) sees another: an earlier one of its line, or one of the tokens
    that its line shares with the ``first`` of its prompt."""
    column = jnp.arange(line.shape[1], dtype=jnp.int32)[None]
    before = column[:, None] <= column[:, :, None]
    own = line[:, :, None] == line[:, None]
    of_first = (line[:, None] == first[:, :, None]) & (at[:, None] < shared[:, :, None])
    return before & (own | of_first)

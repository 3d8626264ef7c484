"""A source that adds imagined transitions to a replay buffer or a log (model-based RL)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, PyTree

from sterling import random_keys as named
from sterling.experience.batch_draws import Draws, Due, SourceWrapper, StoredRows, every_feed
from sterling.experience.replay.kept_extras import PAST
from sterling.experience.replay.n_step_windows import window_transitions
from sterling.experience.replay.ring_buffer import Place, Ring
from sterling.experience.store_memory_check import check_memory
from sterling.needs.feed import DREAM, ONE_STEP, REPLAY
from sterling.types import AnyNeeds, Feed, Mistake, Needs, Record, Signals


class Dream(SourceWrapper, eqx.Module):
    """Has the agent imagine branches from real rows of ``source`` in every iteration, and keeps the
    newest of them (``needs.Dreams``).

    The branches of one iteration lie side by side in a ring, as envs do: ``steps`` rows each,
    then one masked row that holds the final observation. Random numbers are derived from the
    iteration's keys under "dream", so the real experience is the same as without imagination.
    Extras of imagined rows are kept with them.
    """

    source: Any  # StoredRows
    dreams: Ring
    feed: Feed = eqx.field(static=True)
    known: tuple[str, ...] = eqx.field(static=True, default=())  # extras that real rows may have

    @classmethod
    def create(cls, source: StoredRows, feed: Feed, keys: Key[Array, "seed"], agent: Any) -> Dream:
        """Create an empty ring of imagined branches for every seed; ``feed`` is the feed with
        ``dreams``, and ``agent`` is traced for the extras of the rows that it imagines.

        Raises :class:`Mistake` for extras that are no numbers of single rows, or that have names of
        the feed's own.
        """
        own: Any = feed.dreams
        real, valid = source.starts(own.branches, keys)
        obs, action = jax.tree.map(jnp.zeros_like, (real.obs, real.action))
        forms = _extra_forms(eqx.filter_eval_shape(agent.imagine, real, valid, keys))
        _check_names(forms, feed)
        shape = real.mask.shape
        kept = {name: jnp.zeros((*shape, *form.shape), form.dtype) for name, form in forms.items()}
        floats = [name for name, x in kept.items() if x.dtype == jnp.float32]
        summed = tuple(name for name in source.summed if name in floats)  # draws refuse others

        def ring() -> Ring:
            blocks = -(-own.size // (own.branches * own.steps))
            rows = (blocks + 1) * (own.steps + 1)
            return Ring.create(rows, obs, action, kept=kept, summed=summed)

        check_memory(own.size, ring, "kept")
        channels = [name for world in source.worlds for name in world.spec.channels]
        return cls(source, ring(), feed, (*real.extras, *channels))

    def collect(
        self, agent: Any, keys: Key[Array, "seed"], due: Due = every_feed
    ) -> tuple[Dream, DreamDraws]:
        """Collect with ``source``, then imagine new branches if they are due."""
        source, draws = self.source.collect(agent, keys, due)
        now = True if self.feed.always else due(self.feed)
        below = named.fold_each(keys, "dream")

        def imagined(dreams: Ring) -> Ring:
            count = self.feed.dreams.branches  # type: ignore[union-attr]
            real, valid = source.starts(count, named.fold_each(below, "begin"))
            return _imagine_branches(real, valid, dreams, agent, below)

        if isinstance(now, jax.core.Tracer):
            dreams = jax.lax.cond(now, imagined, lambda dreams: dreams, self.dreams)
        else:
            dreams = imagined(self.dreams) if now else self.dreams
        made = dataclasses.replace(self, source=source, dreams=dreams)
        return made, DreamDraws(draws, dreams, self.known)


class DreamDraws(eqx.Module):
    """Batches of real rows, and batches that mix real and imagined rows."""

    draws: Any
    dreams: Ring
    known: tuple[str, ...] = eqx.field(static=True)  # extras that real rows may have

    feedback = property(
        lambda self: self.draws.feedback, doc="State of the source that updates change."
    )

    def rows(self, feed: Feed) -> int:
        """Return the number of rows in one batch."""
        return feed.batch

    def presample(self, feed: Feed, keys: Key[Array, "seed"]) -> PyTree:
        """Draw the real rows' random numbers, and the indices of imagined rows."""
        draws: Draws = self.draws
        own = draws.presample(feed, keys)
        if feed.of != DREAM:
            return own
        shape = (feed.updates, feed.batch - draws.rows(feed))
        below = named.fold_each(keys, "dream")
        return own, jax.vmap(lambda key: _sample_rows(self.dreams, feed, shape, key))(below)

    def draw(self, feed: Feed, seed: Int[Array, ""], feedback: PyTree, sample: PyTree) -> Record:
        """Return one update's batch: real rows, then imagined ones (or sequences of either).

        Extras that only real rows have are left out; those that only imagined rows have are 0 in
        real ones. Raises :class:`Mistake` if the two have an extra in different forms, or if real
        rows lack it because ``keep`` does not name it.
        """
        if feed.of != DREAM:
            batch: Record = self.draws.draw(feed, seed, feedback, sample)
            return batch
        real = self.draws.draw(feed, seed, feedback, sample[0])
        place = Place(seed, sample[1][..., 0], sample[1][..., 1])
        if feed.length:
            place = place.ahead(feed.length, self.dreams.rows)
        keep = bool(self.dreams.kept_names)
        dreamt = window_transitions(self.dreams, feed, place, extras={}, keep=keep)
        extras = {name: self._real_extra(name, real, x) for name, x in dreamt.extras.items()}
        both = dataclasses.replace(real, extras=extras, start=None), dreamt
        return jax.tree.map(lambda *each: jnp.concatenate(each), *both)

    def _real_extra(self, name: str, real: Record, dreamt: Array) -> Array:
        """Return an extra of real rows, like that of imagined ones."""
        axes = real.mask.ndim
        if name not in real.extras:
            if name in self.known and real.mask.size:
                raise Mistake(
                    f"imagine returns the extra {name!r}, which real rows have if keep of Needs "
                    "names it. Name it there, or give it another name."
                )
            return jnp.zeros((*real.mask.shape, *dreamt.shape[axes:]), dreamt.dtype)
        found = real.extras[name]
        own, other = ((x.shape[axes:], str(x.dtype)) for x in (dreamt, found))
        if own != other:
            raise Mistake(
                f"imagine returns the extra {name!r} of shape {own[0]} and type {own[1]}, but real "
                f"rows have it of shape {other[0]} and type {other[1]}. Return it like theirs."
            )
        return found

    def heed(self, feed: Feed, feedback: PyTree, signals: Signals, batch: Record) -> PyTree:
        """Pass the signals of real feeds on to the source."""
        return feedback if feed.of == DREAM else self.draws.heed(feed, feedback, signals, batch)


def check_dreams(name: str, needs: AnyNeeds) -> None:
    """Raise Mistake if the imagination feed of the learner ``name`` asks for what imagined rows
    lack."""
    feed = dream_feed(needs)
    if feed is None:
        return
    if feed.dreams is None:
        raise Mistake(
            f"{name} has a feed of=DREAM without its settings; add dreams=Dreams(...) to the feed"
        )
    asked = ", ".join(["priority"] * bool(feed.priority) + ["place"] * ("place" in feed.add))
    if asked:
        raise Mistake(
            f"{name}: imagined rows are drawn uniformly, outside the replay; remove {asked} from "
            "the feed with dreams"
        )
    steps = feed.dreams.steps
    if feed.length > steps:
        raise Mistake(
            f"{name} asks for {feed.length} consecutive imagined rows, but a branch has {steps}; "
            f"set length to at most {steps}, or give dreams more steps"
        )


def dream_feed(needs: AnyNeeds) -> Feed | None:
    """Return the feed with imagined rows; None if there is none."""
    return next((feed for feed in needs.feeds if feed.of == DREAM), None)


def needs_without_dreams(needs: AnyNeeds) -> AnyNeeds:
    """Return what the replay or the log must provide: imagination feeds reduced to real rows."""
    if dream_feed(needs) is None:
        return needs

    def real(feed: Feed) -> Feed:
        if feed.dreams is None:
            return feed
        rows = round(feed.dreams.real * feed.batch)
        return dataclasses.replace(feed, of=REPLAY, batch=rows, dreams=None)

    feeds = tuple(real(feed) for feed in needs.feeds)
    return Needs(needs.collect, feeds, needs.capacity, needs.warmup, needs.keep)


@eqx.filter_jit  # for host worlds; no effect inside a compiled program
def _imagine_branches(
    real: Record, valid: Bool[Array, "seed branch"], dreams: Ring, agent: Any, keys: Any
) -> Ring:
    """Imagine one iteration's branches from real rows and add them to the ring."""
    rows = agent.imagine(real, valid, named.fold_each(keys, "imagine"))
    found = {name: (form.shape, str(form.dtype)) for name, form in _extra_forms(rows).items()}
    parts = zip(dreams.kept_names, dreams.kept_parts, strict=True)
    if found != (begun := {name: (part.shape, part.dtype) for name, part in parts}):
        name = min(name for name in found | begun if found.get(name) != begun.get(name))
        raise Mistake(
            f"imagine returned the extra {name!r} as {begun.get(name, 'nothing')} when the run "
            f"began, and now as {found.get(name, 'nothing')}. Return the same extras in every call."
        )
    return dreams.insert(_with_end_row(rows))


def _extra_forms(rows: Record) -> dict[str, jax.ShapeDtypeStruct]:
    """Return the shape of one row's entry of each extra that ``imagine`` returned, and its type, by
    name; raise Mistake unless it is an array of numbers ``(seed, time, branch, ...)``."""
    shape, made = rows.reward.shape, {}
    for name, x in rows.extras.items():
        numbers = hasattr(x, "dtype") and not jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)
        if not numbers or x.shape[:3] != shape:
            said = f"of shape {x.shape[1:]}" if numbers else "that is no array of numbers"
            raise Mistake(
                f"imagine returns an extra {name!r} {said}, but its rows are {shape[1:]}: (time, "
                "branch). Return one number or array for each row, or leave it out."
            )
        kind = jax.dtypes.canonicalize_dtype(x.dtype)
        made[name] = jax.ShapeDtypeStruct(x.shape[3:], kind)
    return made


def _check_names(forms: Mapping[str, Any], feed: Feed) -> None:
    """Raise Mistake if ``imagine`` returns an extra with a name that the feed or a replay uses."""
    own = {*feed.add, *(ONE_STEP if "one_step" in feed.add else ())}
    if taken := [name for name in forms if name in own or name.startswith(PAST)]:
        raise Mistake(
            f"imagine returns the extra {taken[0]!r}, a name of rows' own extras. Give it another "
            "name."
        )


def _with_end_row(rows: Record) -> Record:
    """Append one masked row with the final observation to branches ``(seed, time, branch,
    ...)``."""
    end = jax.tree.map(lambda x: x[:, -1:], rows.next_obs)
    after = jax.tree.map(lambda x: jnp.zeros_like(x[:, :1]), rows)
    after = dataclasses.replace(after, obs=end, next_obs=end)
    return jax.tree.map(lambda x, y: jnp.concatenate([x, y], 1), rows, after)


def _sample_rows(
    dreams: Ring, feed: Feed, shape: tuple[int, int], key: Key[Array, ""]
) -> Int[Array, "update batch 2"]:
    """Draw rows and branches uniformly (for sequences: their first rows).

    Excluded are the masked rows between branches, and the block whose first observation the newest
    final observation has overwritten. A sequence stays within one branch.
    """
    own: Any = feed.dreams
    block, starts = own.steps + 1, own.steps - max(feed.length, 1) + 1
    held = jnp.minimum(dreams.count, dreams.rows - block)
    oldest = dreams.head - held
    most = jnp.maximum(held // block, 1) * starts
    below = named.split(key, "part", 2)
    at = jax.random.randint(below[0], shape, 0, most, jnp.int32)
    row = jnp.mod(oldest + at // starts * block + at % starts, dreams.rows)
    branch = jax.random.randint(below[1], shape, 0, dreams.words.shape[2], jnp.int32)
    return jnp.stack([row, branch], -1)

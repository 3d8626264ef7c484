"""Make one iteration's updates of one seed with the batches of one feed."""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from sterling import random_keys as named
from sterling.experience.batch_draws import Draws, feed_keys
from sterling.experience.stored_rows import RowsToStore, rows_to_store
from sterling.needs.feed import DREAM
from sterling.training.plasticity.hidden_unit_metrics import hidden_unit_metrics
from sterling.types import Algorithm, Feed, Mistake, Record

UPDATE_COUNT = "updates"  # the metric that counts the updates of a feed with a name
StateAndHeard = tuple[Any, PyTree]  # an algorithm's state, and what the source hears from it
Found = tuple[dict[str, Array], RowsToStore | None]  # metrics, and what is to be stored


@dataclasses.dataclass(frozen=True)
class FeedUpdates:
    """An algorithm's updates with a feed's batches, drawn for the seed with this index."""

    algorithm: Algorithm
    feed: Feed
    draws: Draws
    seed: Int[Array, ""]
    measured: bool = False  # whether hidden units are measured

    def __call__(
        self,
        learned: StateAndHeard,
        chances: PyTree,
        key: Key[Array, ""],
        iteration: Int[Array, ""],
    ) -> tuple[StateAndHeard, Found]:
        """Make all updates that are due in this iteration. Return their metrics: means; for a feed
        with a name, or without updates in some iterations, sums and the number of updates. Return
        also what they store, of every update (``RowsToStore``)."""
        feed = self.feed

        def all_of_them(learned: StateAndHeard) -> tuple[StateAndHeard, Found]:
            return self._all(learned, chances, key)

        if feed.always:
            return all_of_them(learned)
        kinds = jax.eval_shape(all_of_them, learned)[1]
        none = jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), kinds)
        made: tuple[StateAndHeard, Found] = jax.lax.cond(
            feed.is_due(iteration), all_of_them, lambda learned: (learned, none), learned
        )
        return made

    def _all(
        self, learned: StateAndHeard, chances: PyTree, key: Key[Array, ""]
    ) -> tuple[StateAndHeard, Found]:
        feed = self.feed
        if feed.whole:
            learned, (metrics, stored) = self._update(learned, (chances, key))
            count = 1
        else:
            count = feed.updates
            each = (chances, named.split(key, "update", count))
            learned, (metrics, stored) = jax.lax.scan(self._update, learned, each)
            metrics = {name: value.mean() for name, value in metrics.items()}
        if not feed.name and feed.always:
            return learned, (metrics, stored)
        before = f"{feed.name}/" if feed.name else ""
        sums = {f"{before}{name}": value * count for name, value in metrics.items()}
        return learned, ({f"{before}{UPDATE_COUNT}": jnp.float32(count), **sums}, stored)

    def _update(
        self, learned: StateAndHeard, each: tuple[PyTree, Key[Array, ""]]
    ) -> tuple[StateAndHeard, Found]:
        """Make one update: draw a batch, learn, heed."""
        (state, heard), (chance, key) = learned, each
        batch = self.draws.draw(self._as_now(state), self.seed, heard, chance)
        learn = getattr(self.algorithm, self.feed.learner)
        with _explained_extras(self.feed, batch):
            state, signals = learn(state, batch, key)
        metrics = signals.metrics
        if self.measured:
            units_key = named.fold(key, "units")
            metrics = metrics | hidden_unit_metrics(self.algorithm, state, batch, units_key)
        stored = rows_to_store(self.feed, signals, batch)
        return (state, self.draws.heed(self.feed, heard, signals, batch)), (metrics, stored)

    def _as_now(self, state: Any) -> Feed:
        """Return the feed with the current n and discount of n-step returns, from ``state``."""
        current = getattr(self.algorithm, "n_step_now", None)
        now = None if current is None else current(state)
        return self.feed if now is None else dataclasses.replace(self.feed, n_step_now=now)


@contextlib.contextmanager
def _explained_extras(feed: Feed, batch: Record) -> Iterator[None]:
    """While entered, an extra that the batch lacks raises Mistake, not KeyError; other KeyErrors of
    a learner's stay."""
    try:
        yield
    except KeyError as error:
        line = traceback.extract_tb(error.__traceback__)[-1].line or ""
        if "extras" not in line or error.args[0] in batch.extras:
            raise
        known = ", ".join(sorted(batch.extras)) or "none"
        remedy = (
            "Rows of a model have what imagine returns in extras and what add of their feed names."
            if feed.of == DREAM
            else "Name it in keep of Needs (a channel, episode/NAME, what act returns) or in add "
            "of the feed."
        )
        raise Mistake(
            f"{feed.learner} reads extras[{error.args[0]!r}], but the extras of its batch are "
            f"{known}. {remedy}"
        ) from error


def presample(
    draws: Draws, feed: Feed, keys: Key[Array, "seed"], iteration: Int[Array, ""]
) -> PyTree:
    """Draw the random numbers of a feed's updates; in an iteration in which it is not due, return
    zeros without drawing."""

    def drawn() -> PyTree:
        return draws.presample(feed, feed_keys(feed, keys))

    if feed.always or feed.whole:
        return drawn()
    none = jax.tree.map(_zeros, jax.eval_shape(drawn))
    return jax.lax.cond(feed.is_due(iteration), drawn, lambda: none)


def _zeros(kind: jax.ShapeDtypeStruct) -> Array:
    if jax.dtypes.issubdtype(kind.dtype, jax.dtypes.prng_key):
        return jnp.broadcast_to(jax.random.key(0), kind.shape)
    return jnp.zeros(kind.shape, kind.dtype)


def check_metrics(feed: Feed, feeds: Sequence[Feed], metrics: Iterable[str]) -> None:
    """Raise Mistake if a metric of ``learn`` begins with the name of another feed, or has the name
    of one seed's number of another metric (``loss/0``, see ``report/live/metric_sinks.py``)."""
    names, known = {each.name for each in feeds if each.name}, set(metrics)
    for name in sorted(known):
        first, (stem, _, last) = name.split("/")[0], name.rpartition("/")
        if not feed.name and first in names:
            raise Mistake(
                f"learn reports {name!r}, which begins with the name of the feed {first!r}. "
                "Rename the feed."
            )
        if stem in known and last.isdecimal():
            raise Mistake(
                f"learn reports {stem!r} and {name!r}, but {name!r} is how TensorBoard and Weights "
                f"& Biases call {stem!r} of seed number {last}. Rename one of them."
            )


def mean_metrics(sums: dict[str, Any], iterations: Any) -> dict[str, Any]:
    """Return mean metrics from the sums of ``iterations`` iterations: means per iteration; for a
    feed that counts its updates, means per update of the feed."""
    found = {}
    for name, total in sums.items():
        counted = f"{name.split('/')[0]}/{UPDATE_COUNT}"
        counted = counted if counted in sums else UPDATE_COUNT
        if name == UPDATE_COUNT:  # a column of that name holds the budget
            continue
        is_count = name == counted
        count = sums[counted] if counted in sums and not is_count else iterations
        with np.errstate(divide="ignore", invalid="ignore"):  # without an update NaN
            found[name] = total / count
    return found

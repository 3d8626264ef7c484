"""One iteration's updates of one seed by the batches of one kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key, PyTree

from sterling import keys as named
from sterling.experience.draws import Draws
from sterling.types import Algorithm, Feed, Mistake

UPDATES = "updates"  # the metric that counts those of a feed with a name
Learned = tuple[Any, PyTree]  # an algorithm's state, and what the source has heard


@dataclasses.dataclass(frozen=True)
class Updates:
    """What an algorithm makes of a feed's batches, drawn for the seed at this place."""

    algorithm: Algorithm
    feed: Feed
    draws: Draws
    seed: Int[Array, ""]

    def __call__(
        self, learned: Learned, chances: PyTree, key: Key[Array, ""], iteration: Int[Array, ""]
    ) -> tuple[Learned, dict[str, Array]]:
        """All updates that are due in this iteration, and their metrics: the mean of them; for a
        feed with a name the sums, and how many updates they are of."""
        feed = self.feed

        def all_of_them(learned: Learned) -> tuple[Learned, dict[str, Array]]:
            return self._all(learned, chances, key)

        if feed.every > 1:
            kinds = jax.eval_shape(all_of_them, learned)[1]
            none = {name: jnp.zeros(each.shape, each.dtype) for name, each in kinds.items()}
            due = iteration % feed.every == 0
            learned, metrics = jax.lax.cond(
                due, all_of_them, lambda learned: (learned, none), learned
            )
        else:
            learned, metrics = all_of_them(learned)
        return learned, metrics

    def _all(
        self, learned: Learned, chances: PyTree, key: Key[Array, ""]
    ) -> tuple[Learned, dict[str, Array]]:
        feed = self.feed
        if feed.whole:
            learned, metrics = self._update(learned, (chances, key))
            count = 1
        else:
            count = feed.updates
            each = (chances, named.deal(key, "update", count))
            learned, metrics = jax.lax.scan(self._update, learned, each)
            metrics = {name: value.mean() for name, value in metrics.items()}
        if not feed.name:
            return learned, metrics
        sums = {f"{feed.name}/{name}": value * count for name, value in metrics.items()}
        return learned, {f"{feed.name}/{UPDATES}": jnp.float32(count), **sums}

    def _update(
        self, learned: Learned, each: tuple[PyTree, Key[Array, ""]]
    ) -> tuple[Learned, dict[str, Array]]:
        """Draw, learn, heed."""
        (state, heard), (chance, key) = learned, each
        batch = self.draws.draw(self._as_now(state), self.seed, heard, chance)
        learn = getattr(self.algorithm, self.feed.learner)
        state, signals = learn(state, batch, key)
        return (state, self.draws.heed(self.feed, heard, signals, batch)), signals.metrics

    def _as_now(self, state: Any) -> Feed:
        """The feed, with the horizon that ``state`` gives its n-step sums."""
        horizon = getattr(self.algorithm, "horizon", None)
        now = horizon(state) if callable(horizon) else None
        return self.feed if now is None else dataclasses.replace(self.feed, horizon=now)


def check_metrics(feed: Feed, feeds: Sequence[Feed], metrics: Iterable[str]) -> None:
    """Raise Mistake where what an unnamed feed's learner reports is called as if another's did."""
    names = {each.name for each in feeds if each.name}
    clash = [name for name in metrics if not feed.name and name.split("/")[0] in names]
    if clash:
        raise Mistake(
            f"learn reports {clash[0]!r}, as if it came from the feed {clash[0].split('/')[0]!r}; "
            "give the feed another name"
        )


def means(sums: dict[str, Any], iterations: Any) -> dict[str, Any]:
    """Metrics of so many iterations from their sums: of an iteration, or where a feed has a name of
    its updates."""
    found = {}
    for name, total in sums.items():
        counted = f"{name.split('/')[0]}/{UPDATES}"
        is_count = name == counted
        count = sums[counted] if counted in sums and not is_count else iterations
        with np.errstate(divide="ignore", invalid="ignore"):  # no update: nothing to say
            found[name] = total / count
    return found

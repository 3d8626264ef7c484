"""Batches of every kind that an algorithm needs, drawn from what it lives in a probe world."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from sterling import keys
from sterling.checking.batch import ENVS
from sterling.checking.finding import Check, Unseen
from sterling.checking.training import FORMS
from sterling.checking.update import keeps, learns_alike, masks
from sterling.training.phases import iteration_steps, warmup_steps
from sterling.training.settings import resolve
from sterling.training.start import build
from sterling.types import Feed

STEPS = 40_000  # planned, so that schedules have somewhere to go


class Drawn:
    """A fresh state of an algorithm and the first batch of one of its feeds."""

    def __init__(self, word: Any, fields: dict[str, Any], form: str, feed: Feed):
        asked: Any = {"steps": STEPS, "envs": ENVS, "preset": False, "fields": fields}
        settings = resolve(word, f"probe:both{FORMS[form]}", **asked)
        self.steps = warmup_steps(settings) + iteration_steps(settings)
        run = build(settings)
        agent: Any = run.agent
        self.algorithm, self.feed, self.form = agent.algorithm, feed, form
        self.rollout = feed.whole or feed.length > 0
        self.state = jax.tree.map(lambda leaf: leaf[0], agent.state)
        self.learn = jax.jit(getattr(self.algorithm, feed.learner))
        self._batch = _first_batch(run, feed)  # once: a replay that has collected is used up

    def batch(self) -> Any:
        """What the feed's first update would be given."""
        if not self._batch.mask.any():
            raise Unseen(f"after {self.steps} steps there is nothing to learn from yet")
        return self._batch

    def learned(self, batch: Any, key: int = 1) -> Any:
        """The state after one update."""
        return self.learn(self.state, batch, jax.random.key(key))[0]


def _first_batch(run: Any, feed: Feed) -> Any:
    _, draws = run.source.collect(run.agent, keys.at(run.seeds, "collect", 0))
    chance = draws.chances(feed, keys.at(run.seeds, "draw", 0))
    first = jax.tree.map(lambda leaf: leaf[0] if feed.whole else leaf[0, 0], chance)
    heard = jax.tree.map(lambda leaf: leaf[0], draws.heard)
    return draws.draw(feed, jnp.zeros((), jnp.int32), heard, first)


def feed_checks(
    made: tuple[Any, Any], fields: dict[str, Any], form: str, feed: Feed
) -> Iterator[Check]:
    """Yield the checks of one feed's learner; ``made`` is the algorithm, and what names it."""
    algorithm, word = made
    learner, of, kept = feed.learner, f" ({form} actions)", list[Drawn]()

    def subject() -> Drawn:  # made when it is first asked for: what fails then is a finding
        if not kept:
            kept.append(Drawn(word, fields, form, feed))
        return kept[0]

    code = getattr(algorithm, learner)
    yield f"{learner} keeps shapes and types{of}", lambda: keeps(subject()), code
    yield f"{learner} is a function of its key{of}", lambda: learns_alike(subject()), code
    yield f"masked rows teach {learner} nothing{of}", lambda: masks(subject()), code

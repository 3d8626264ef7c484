"""Checks on batches of every kind that an algorithm needs, drawn from a short run on a probe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from sterling import random_keys
from sterling.checking.example_batch import ENVS
from sterling.checking.review_findings import Check, NotChecked
from sterling.checking.training_checks import NAME_SUFFIXES
from sterling.checking.update_checks import (
    check_deterministic,
    check_masked_rows,
    check_shapes_kept,
)
from sterling.training.assembly.build_run import build_first_phase
from sterling.training.config.resolve_settings import resolve_settings
from sterling.training.phases.phase_sequence import steps_per_iteration, warmup_steps
from sterling.types import Feed

PLANNED_STEPS = 40_000  # the planned length of the run, for schedules


class FeedSubject:
    """A new state of an algorithm, and the first batch of one of its feeds."""

    def __init__(self, word: Any, fields: dict[str, Any], form: str, feed: Feed):
        options: Any = {"steps": PLANNED_STEPS, "envs": ENVS, "preset": False, "fields": fields}
        settings = resolve_settings(word, f"probe:both{NAME_SUFFIXES[form]}", **options)
        self.steps = warmup_steps(settings) + steps_per_iteration(settings)
        run = build_first_phase(settings)
        agent: Any = run.agent
        self.algorithm, self.feed, self.form = agent.algorithm, feed, form
        self.rollout = feed.whole or feed.length > 0
        self.state = jax.tree.map(lambda leaf: leaf[0], agent.state)
        self.learn = jax.jit(getattr(self.algorithm, feed.learner))
        self._batch = _first_batch(run, feed)  # drawn once, because drawing changes the run

    def batch(self) -> Any:
        """Return the batch of the feed's first update."""
        if not self._batch.mask.any():
            raise NotChecked(f"after {self.steps} steps there is no valid row to learn from yet")
        return self._batch

    def update(self, batch: Any, key: int = 1) -> Any:
        """Return the state after one update."""
        return self.learn(self.state, batch, jax.random.key(key))[0]


def _first_batch(run: Any, feed: Feed) -> Any:
    _, draws = run.source.collect(run.agent, random_keys.for_seeds(run.seeds, "collect", 0))
    chance = draws.presample(feed, random_keys.for_seeds(run.seeds, "draw", 0))
    first = jax.tree.map(lambda leaf: leaf[0] if feed.whole else leaf[0, 0], chance)
    heard = jax.tree.map(lambda leaf: leaf[0], draws.feedback)
    return draws.draw(feed, jnp.zeros((), jnp.int32), heard, first)


def feed_checks(
    named_algorithm: tuple[Any, Any], fields: dict[str, Any], form: str, feed: Feed
) -> Iterator[Check]:
    """Yield the checks of one feed's learner, given an algorithm and the word that names it."""
    algorithm, word = named_algorithm
    learner, actions, cached = feed.learner, f" ({form} actions)", list[FeedSubject]()

    def subject() -> FeedSubject:  # made by the first check, so that an error is a finding
        if not cached:
            cached.append(FeedSubject(word, fields, form, feed))
        return cached[0]

    code = getattr(algorithm, learner)
    yield f"{learner} keeps shapes and types{actions}", lambda: check_shapes_kept(subject()), code
    yield (
        f"{learner} returns the same for the same key{actions}",
        lambda: check_deterministic(subject()),
        code,
    )
    yield f"{learner} ignores masked rows{actions}", lambda: check_masked_rows(subject()), code

"""Checks on batches of every kind that an algorithm needs, from the first iteration of a run."""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling import random_keys
from sterling.actor import Past
from sterling.algorithms.strict_algorithm import StrictAlgorithm
from sterling.checking.problems.checked_problem import Problem
from sterling.checking.review_findings import CheckFailed, NotChecked
from sterling.experience.beside_rows import STEPS
from sterling.needs.feed import EPISODES, PAD
from sterling.training.assembly.build_run import build_first_phase, checked_problem_spec
from sterling.training.host_visits import Visits
from sterling.types import Feed, Record, Spec

ROWS = 64  # observations given to ``act``
MASKED_EVERY = 5  # rows of a batch, if it has none that are masked


def first_subjects(problem: Problem) -> list[FeedSubject]:
    """Begin a run on the problem; return each feed's first batch, beside a new state."""
    settings = problem.settings()
    run: Any = build_first_phase(settings)
    try:
        begun = FirstIteration(run, checked_problem_spec(settings))
        strict = begun.run.agent.algorithm
        jax.eval_shape(lambda key: strict.init(key, begun.spec, settings.config), jax.random.key(0))
        return [FeedSubject(begun, feed) for feed in run.agent.needs.feeds]
    finally:
        run.source.close()


class FirstIteration:
    """A run that has just begun, and what its first iteration collected."""

    def __init__(self, begun: Any, spec: Spec):
        run = Visits({}).made(begun)  # has pairs compared, for instance
        own: Any = StrictAlgorithm(run.agent.algorithm)
        agent = dataclasses.replace(run.agent, algorithm=own)
        self.run, self.spec = dataclasses.replace(run, agent=agent), spec
        self.state = jax.tree.map(lambda leaf: leaf[0], run.agent.state)
        keys = random_keys.for_seeds(run.seeds, "collect", 0)
        collect = self._compiled(lambda run, keys: run.source.collect(run.agent, keys)[1])
        self.draws: Any = collect(run, keys)

    def _compiled(self, function: Any) -> Any:
        """Return the function as one program, unless the source acts or reads on the host."""
        return jax.jit(function) if self.run.source.traced else function

    def batch(self, feed: Feed) -> Record:
        """Return the batch of a feed's first update."""
        made: Record = self._compiled(partial(_first_batch, feed))(self.draws, self.run.seeds)
        return made


def _first_batch(feed: Feed, draws: Any, seeds: Any) -> Record:
    chance = draws.presample(feed, random_keys.for_seeds(seeds, "draw", 0))
    first = jax.tree.map(lambda leaf: leaf[0] if feed.whole else leaf[0, 0], chance)
    heard = jax.tree.map(lambda leaf: leaf[0], draws.feedback)
    made: Record = draws.draw(feed, jnp.zeros((), jnp.int32), heard, first)
    return made


class FeedSubject:
    """A new state of an algorithm, and the first batch of one of its feeds."""

    def __init__(self, begun: FirstIteration, feed: Feed):
        agent = begun.run.agent
        self.algorithm: Any = agent.algorithm
        self.spec, self.state = begun.spec, begun.state
        self.of, self.learner, self.explores = feed.of, feed.learner, _explores(agent.needs)
        self.rollout = feed.whole or feed.length > 0
        self.learn = jax.jit(getattr(self.algorithm, feed.learner))
        self._batch = _with_ends_and_masks(begun.batch(feed), feed)

    def batch(self) -> Any:
        """Return the batch of the feed's first update."""
        if not self._batch.mask.any():
            raise NotChecked(
                "there is no valid row to learn from yet: give the algorithm a larger warmup or "
                "shorter sequences in its `checked_in`"
            )
        return self._batch

    def update(self, batch: Any, key: int = 1) -> Any:
        """Return the state after one update."""
        return self.learn(self.state, batch, jax.random.key(key))[0]

    def act(self, key: int, explore: bool) -> tuple[Any, int]:
        """Return what ``act`` (or ``recall``, without its memory) returns for observations of the
        batch, and their number."""
        obs, action = self._rows
        own = self.algorithm
        recalls = hasattr(own, "recall")
        choose = partial(_recalled, (own, self.spec)) if recalls else partial(_acted, own)
        answer = jax.jit(partial(choose, explore=explore))(self.state, obs, action, key)
        return answer, len(jax.tree.leaves(obs)[0])

    @cached_property
    def _rows(self) -> tuple[Any, Any]:
        """Return ``ROWS`` observations and actions of the batch, again and again if it has fewer;
        of a population, whose rows are episodes, random ones."""
        batch, axes = self._batch, self._batch.mask.ndim
        if self.of == EPISODES:
            rows = [(self.spec.obs.sample(), self.spec.action.sample()) for _ in range(ROWS)]
            made: tuple[Any, Any] = jax.tree.map(lambda *x: jnp.stack(x), *rows)
            return made
        flat = jax.tree.map(lambda x: x.reshape(-1, *x.shape[axes:]), (batch.obs, batch.action))
        which = jnp.arange(ROWS) % batch.mask.size
        made = jax.tree.map(lambda x: x[which], flat)
        return made


def _acted(algorithm: Any, state: Any, obs: Any, action: Any, key: int, *, explore: bool) -> Any:
    return algorithm.act(state, obs, jax.random.key(key), explore)


def _recalled(made: Any, state: Any, obs: Any, action: Any, key: int, *, explore: bool) -> Any:
    """Return the actions and extras of ``recall`` in the first step of an episode."""
    (algorithm, spec), count = made, len(jax.tree.leaves(obs)[0])
    none = jax.tree.map(jnp.zeros_like, action)
    memory = algorithm.memory(state, count, jax.random.key(0))
    told = {name: jnp.zeros((count, *each.shape)) for name, each in spec.channels.items()}
    past = Past(memory, none, jnp.zeros(count), jnp.ones(count), jnp.ones(count, bool), told)
    answer = algorithm.recall(state, past, obs, jax.random.key(key), explore)
    if not isinstance(answer, tuple) or len(answer) != 3:
        return answer
    begun, after = (jax.tree.map(jax.typeof, each) for each in (memory, answer[1]))
    if begun != after:
        raise CheckFailed(
            f"the memory was {begun} and becomes {after}",
            "return a memory of the structure, shapes and types that memory(state, envs, key) has",
        )
    return answer[0], answer[-1]


def _with_ends_and_masks(batch: Record, feed: Feed) -> Record:
    """Return the batch with some rows masked and an episode's last row among the others, where it
    has none: single rows anywhere, a rollout's where an episode has just ended, and the first rows
    of a padded sequence."""
    mask, last = np.array(batch.mask), np.array(batch.last)
    if not mask.all() and (last & mask).any() and not batch.beside:
        return batch
    if mask.ndim == 1:
        mask[::MASKED_EVERY] = False
        last[1::MASKED_EVERY] = True
    elif feed.edge == PAD:
        mask[::2, : mask.shape[1] // 2] = False
    elif feed.whole and len(mask) > 1:
        middle = len(mask) // 2
        mask[middle, 0], last[middle], last[middle - 1, 0] = False, False, True
    beside = {name: _with_masks(each) for name, each in batch.beside.items()}
    found = dataclasses.replace(batch, mask=jnp.asarray(mask), last=jnp.asarray(last & mask))
    return dataclasses.replace(found, beside=beside)


def _with_masks(rows: Record) -> Record:
    """Return rows beside a batch with some masked, if they are not tied to the batch's rows."""
    mask = np.array(rows.mask)
    mask[::MASKED_EVERY] &= STEPS in rows.extras
    return dataclasses.replace(rows, mask=jnp.asarray(mask))


def _explores(needs: Any) -> bool:
    """Whether exploring means to draw actions: not for policies that only a log teaches, nor for
    populations, whose members differ."""
    return not (needs.only_from_logs or needs.has_feed(EPISODES) or needs.members)

"""Checks of memories and of adaptation: memories are reset where a trial begins and kept between
its episodes, and ``adapt`` learns from the rows of one task."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces

from sterling import random_keys
from sterling.actor import Past
from sterling.algorithms.strict_algorithm import StrictAlgorithm
from sterling.checking.example_batch import MEMORY_EXTRAS, corrupt_masked_rows
from sterling.checking.needed_batches import FeedSubject
from sterling.checking.problems.checked_problem import Problem
from sterling.checking.review_findings import Check, CheckFailed, NotChecked
from sterling.checking.update_checks import difference_beyond_rounding
from sterling.experience.rollouts.adaptation_rollout import rows_to_adapt_to
from sterling.needs.feed import FRESH
from sterling.training.agent import create_agent
from sterling.training.assembly.build_run import checked_problem_spec, make_world
from sterling.types import Record, Spec

BEGINS = MEMORY_EXTRAS[0]
NOISE = 50.0  # added to what must not matter
ENVS = 4  # trials that are acted in side by side
ENDS_AT, STEPS = 3, 5  # the row in which an inner episode has just ended, and rows in all


def memory_checks(subject: Any, label: str) -> Iterator[Check]:
    """Yield the checks of an algorithm with a memory: of learning from rollouts, and in trials of
    acting."""
    algorithm = subject.algorithm
    if not hasattr(algorithm, "recall") or not isinstance(subject, FeedSubject):
        return
    if subject.of == FRESH:
        code = getattr(algorithm, subject.learner)
        what = f"{subject.learner} forgets what came before a reset of the memory{label}"
        yield what, partial(_check_forgets, subject), code
    if is_trials(subject.spec):
        what = f"recall remembers the earlier episodes of a trial{label}"
        yield what, partial(_check_remembers, subject), algorithm.recall


def is_trials(spec: Spec) -> bool:
    """Whether the observations are those of ``envs/trials.py``, or look alike."""
    return isinstance(spec.obs, spaces.Dict) and {"reward", "ended"} <= spec.obs.spaces.keys()


def _check_forgets(subject: Any) -> str:
    """Check that rows before a reset of the memory, which are masked here, do not change how the
    rows after it are learned from."""
    batch = subject.batch()
    reset = len(batch.mask) // 2
    if BEGINS not in batch.extras or reset < 2:
        raise NotChecked("the rollout has too few steps, or it records no resets")
    batch = _reset_at(batch, reset)
    one, other = (subject.update(_noisy_before(batch, reset, x)) for x in (0.0, NOISE))
    if part := difference_beyond_rounding(one, other):
        raise CheckFailed(
            f"what was observed before a reset changes what is learned after it ({part})",
            "unroll with a new memory in rows where batch.extras['begins'] is True",
        )
    return f"{batch.mask.shape[0] - reset} rows after a reset"


def _reset_at(batch: Record, row: int) -> Record:
    """Return a rollout in which an episode begins in ``row`` of every env, and all rows before are
    masked."""
    begins = batch.extras[BEGINS].at[row].set(True)
    mask, last = batch.mask.at[:row].set(False), batch.last.at[:row].set(False)
    extras = {**batch.extras, BEGINS: begins}
    return dataclasses.replace(batch, mask=mask.at[row].set(True), last=last, extras=extras)


def _noisy_before(batch: Record, row: int, noise: float) -> Record:
    """Return the rollout with ``noise`` added to the numbers of the rows before ``row``, and to the
    memory before the first."""

    def noisy(rows: int, tree: Any) -> Any:
        def one(x: Any) -> Any:
            return x.at[:rows].add(noise) if jnp.issubdtype(x.dtype, jnp.floating) else x

        return jax.tree.map(one, tree)

    extras = {k: x if k in MEMORY_EXTRAS else noisy(row, x) for k, x in batch.extras.items()}
    parts = {name: noisy(row, getattr(batch, name)) for name in ("obs", "action", "reward")}
    start = batch.start
    if isinstance(start, Past):
        envs = batch.mask.shape[1]
        start = dataclasses.replace(start, memory=noisy(envs, start.memory))
    next_obs = noisy(row - 1, batch.next_obs)  # the last of these rows leads to ``row``
    return dataclasses.replace(batch, **parts, next_obs=next_obs, extras=extras, start=start)


def _check_remembers(subject: Any) -> str:
    """Check that the memory after an inner episode's end depends on what came before it."""
    first, second = (_memories(subject, seed) for seed in (1, 2))
    if difference_beyond_rounding(first[ENDS_AT - 1], second[ENDS_AT - 1]) is None:
        return "its memory does not depend on what it observes"
    if difference_beyond_rounding(first[-1], second[-1]) is None:
        raise CheckFailed(
            "after an inner episode's end its memory no longer depends on what came before",
            "keep the memory where obs['ended'] is 1; it is reset where a trial begins",
        )
    return ""


def _memories(subject: Any, seed: int) -> list[Any]:
    """Return the memories after each row of a trial; ``seed`` draws the rows before the end of the
    inner episode, those from it on are always the same."""
    algorithm, spec, state = subject.algorithm, subject.spec, subject.state
    recall = jax.jit(lambda past, obs, key: algorithm.recall(state, past, obs, key, False)[1])
    before, after = (_samples(spec, each) for each in (seed, 0))
    memory, found = algorithm.memory(state, ENVS, jax.random.key(0)), []
    told = {name: jnp.zeros((ENVS, *each.shape)) for name, each in spec.channels.items()}
    for time in range(STEPS):
        obs, action = jax.tree.map(lambda x, t=time: x[t], before if time < ENDS_AT else after)
        obs["ended"] = jnp.full_like(obs["ended"], float(time == ENDS_AT))
        begins = jnp.full(ENVS, time == 0)
        if time == 0:
            action = jax.tree.map(jnp.zeros_like, action)
        reward = jnp.where(begins, 0.0, obs["reward"][:, 0])
        past = Past(memory, action, reward, jnp.ones(ENVS), begins, told)
        memory = recall(past, obs, jax.random.key(time))
        found.append(memory)
    return found


def _samples(spec: Spec, seed: int) -> Any:
    """Return observations and actions ``(time, env, ...)`` drawn from their spaces."""
    both = copy.deepcopy(spaces.Tuple([spec.obs, spec.action]))
    both.seed(seed)
    rows = [both.sample() for _ in range(STEPS * ENVS)]

    def stacked(*x: Any) -> Any:
        each = jnp.stack([jnp.asarray(one) for one in x])
        return each.reshape(STEPS, ENVS, *each.shape[1:])

    return jax.tree.map(stacked, *rows)


def adapt_checks(problem: Problem, label: str) -> Iterator[Check]:
    """Yield the checks of ``adapt`` on rows of several tasks, each a level of the problem's
    world."""
    settings = problem.settings()
    if not settings.environment:
        return
    world: Any = make_world(settings, "evaluate")
    try:
        agent = create_agent(settings, checked_problem_spec(settings))
        keys = random_keys.for_seeds(jnp.asarray(settings.seeds, jnp.int32), "check", 0)
        rows = rows_to_adapt_to(agent, world, random_keys.fold_each(keys, "level"), keys)
    finally:
        world.close()
    algorithm: Any = StrictAlgorithm(agent.algorithm)
    state, rows = (jax.tree.map(lambda x: x[0], each) for each in (agent.state, rows))
    adapt = partial(_adapted, jax.jit(algorithm.adapt), state)
    tasks = [_rows_of_env(rows, env) for env in range(rows.mask.shape[1])]
    code = algorithm.adapt
    yield f"adapt keeps shapes and types{label}", partial(_check_kept, adapt, state, tasks[0]), code
    what = f"adapt returns the same for the same key{label}"
    yield what, partial(_check_deterministic, adapt, tasks[0]), code
    yield f"adapt ignores masked rows{label}", partial(_check_masked, adapt, tasks[0]), code
    yield f"adapt learns from the rows of a task{label}", partial(_check_tasks, adapt, tasks), code


def _adapted(adapt: Any, state: Any, rows: Record) -> Any:
    return adapt(state, rows, jax.random.key(1))


def _rows_of_env(rows: Record, env: int) -> Record:
    """Return the rows of one env, ``(time, 1, ...)``, as ``adapt`` gets them."""
    one = jax.tree.map(lambda x: x[:, env : env + 1], dataclasses.replace(rows, start=None))
    start = jax.tree.map(lambda x: x[env : env + 1], rows.start)
    return dataclasses.replace(one, start=start)


def _check_kept(adapt: Any, state: Any, rows: Record) -> str:
    before, after = (jax.tree.map(jax.typeof, each) for each in (state, adapt(rows)))
    if before != after:
        raise CheckFailed(
            "the adapted state has another structure, or other shapes or types",
            "return a state like the one that adapt is given, such as dataclasses.replace(state)",
        )
    return f"{rows.mask.shape[0]} rows"


def _check_deterministic(adapt: Any, rows: Record) -> str:
    if part := difference_beyond_rounding(adapt(rows), adapt(rows)):
        raise CheckFailed(
            f"the same key and rows give different states ({part})",
            "draw all random numbers from the key",
        )
    return ""


def _check_masked(adapt: Any, rows: Record) -> str:
    masked = int((~rows.mask).sum())
    one, other = (adapt(corrupt_masked_rows(rows, x, rollout=True)) for x in (0.0, NOISE))
    if part := difference_beyond_rounding(one, other):
        raise CheckFailed(
            f"numbers in rows whose mask is False change the adapted state ({part})",
            "weight every loss and statistic by batch.mask, as in learn",
        )
    return f"{masked} of {rows.mask.size} rows"


def _check_tasks(adapt: Any, tasks: list[Record]) -> str:
    first, *others = [adapt(rows) for rows in tasks]
    if all(difference_beyond_rounding(first, each) is None for each in others):
        raise CheckFailed(
            f"the rows of {len(tasks)} tasks give the same state",
            "return a state that differs with the task, of which adapt sees the first rows",
        )
    return f"{len(tasks)} tasks"

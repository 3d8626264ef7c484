"""Checks of one ``act`` and one ``learn`` of an algorithm, on batches made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling.checking.example_batch import (
    ACTION_SPACES,
    corrupt_masked_rows,
    make_batch,
    make_spec,
    random_observations,
    with_final_discount,
)
from sterling.checking.review_findings import Check, CheckFailed, NotChecked
from sterling.needs.feed import FRESH
from sterling.system.shown_values import shown_value
from sterling.types import Signals

ROWS = 256  # observations given to ``act``


class Subject:
    """An algorithm, its settings, and a new state of it for one kind of actions."""

    def __init__(self, algorithm: Any, config: Any, form: str):
        self.algorithm, self.config, self.form = algorithm, config, form
        self.needs, self.spec = algorithm.needs(config), make_spec(form)
        self.rollout = self.needs.has_feed(FRESH)
        self.state = algorithm.init(jax.random.key(0), self.spec, config)
        self.learn = jax.jit(algorithm.learn)

    def batch(self) -> Any:
        """Return a batch with ends, truncations and masked rows."""
        return make_batch(self.algorithm, self.state, self.needs)

    def update(self, batch: Any, key: int = 1) -> Any:
        """Return the state after one update."""
        return self.learn(self.state, batch, jax.random.key(key))[0]


def update_checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of ``act`` and ``learn``."""
    algorithm, actions = subject.algorithm, f" ({subject.form} actions)"
    yield (
        f"act returns actions in the action space{actions}",
        lambda: _check_actions(subject),
        algorithm.act,
    )
    yield (
        f"act returns the same for the same key{actions}",
        lambda: _check_repeatable(subject),
        algorithm.act,
    )
    yield (
        f"act explores differently with another key{actions}",
        lambda: _check_explores(subject),
        algorithm.act,
    )
    learn = algorithm.learn
    yield f"learn keeps shapes and types{actions}", lambda: check_shapes_kept(subject), learn
    yield (
        f"learn returns the same for the same key{actions}",
        lambda: check_deterministic(subject),
        learn,
    )
    yield f"learn ignores masked rows{actions}", lambda: check_masked_rows(subject), learn
    yield (
        f"learn separates ends from truncations{actions}",
        lambda: _check_discount_used(subject),
        learn,
    )


def _check_actions(subject: Subject) -> str:
    space: Any = ACTION_SPACES[subject.form]
    for explore in (True, False):
        obs = jnp.asarray(random_observations(ROWS, 1))
        answer = subject.algorithm.act(subject.state, obs, jax.random.key(2), explore)
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            raise CheckFailed(
                f"act returns {shown_value(answer)}", "return (actions, extras), extras a dict"
            )
        action, wanted = np.asarray(answer[0]), (ROWS, *(space.shape or ()))
        if action.shape != wanted:
            raise CheckFailed(
                f"{ROWS} observations get actions of shape {action.shape}, not {wanted}"
            )
        if subject.form == "discrete" and action.dtype.kind not in "iu":
            raise CheckFailed(f"discrete actions have type {action.dtype}", "return integers")
        inside = [space.contains(each.astype(space.dtype)) for each in action]
        if not all(inside) and subject.form == "discrete":
            raise CheckFailed(
                f"action {action[np.argmin(inside)]} is none of the {space.n} choices"
            )
        if not np.isfinite(action).all():
            raise CheckFailed("an action is NaN or infinite")
    return ""


def _sample_actions(subject: Subject, key: int, explore: bool) -> np.ndarray:
    obs = jnp.asarray(random_observations(ROWS, 1))
    return np.asarray(subject.algorithm.act(subject.state, obs, jax.random.key(key), explore)[0])


def _check_repeatable(subject: Subject) -> str:
    if not np.array_equal(_sample_actions(subject, 2, True), _sample_actions(subject, 2, True)):
        raise CheckFailed(
            "the same key gives different actions", "draw all random numbers from the key"
        )
    return ""


def _check_explores(subject: Subject) -> str:
    if np.array_equal(_sample_actions(subject, 2, True), _sample_actions(subject, 3, True)):
        raise CheckFailed(
            f"with explore=True two keys give the same actions for {ROWS} observations",
            "draw from the key that act is given, such as jax.random.categorical(key, logits)",
        )
    return ""


def check_shapes_kept(subject: Any) -> str:
    """Check that an update returns a state of the same structure, shapes and types, and scalar
    metrics."""
    answer = subject.learn(subject.state, subject.batch(), jax.random.key(1))
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], Signals):
        raise CheckFailed(
            f"learn returns {type(answer).__name__}", "return (state, Signals(metrics))"
        )
    before = jax.tree_util.tree_leaves_with_path(subject.state)
    after = jax.tree_util.tree_leaves_with_path(answer[0])
    if [path for path, _ in before] != [path for path, _ in after]:
        raise CheckFailed("the state's structure changes", "return a state of the same structure")
    for (path, one), (_, two) in zip(before, after, strict=True):
        old, new = (
            jax.typeof(x) if hasattr(x, "dtype") else jax.typeof(jnp.asarray(x)) for x in (one, two)
        )
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            name = jax.tree_util.keystr(path)
            raise CheckFailed(
                f"the state's {name} was {old.dtype}{list(old.shape)} and becomes "
                f"{new.dtype}{list(new.shape)}",
                f"use the same shape and type in init, or convert with {name}.astype",
            )
    bad = [name for name, value in answer[1].metrics.items() if jnp.shape(value) != ()]
    if bad:
        raise CheckFailed(f"the metric {bad[0]} is not a scalar", "report its mean over the batch")
    return f"{len(after)} leaves"


def _first_difference(one: Any, other: Any) -> str | None:
    """Return the first leaf in which two states differ beyond rounding, None if there is none."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True)
    for (path, first), second in pairs:
        x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
        if not np.allclose(x, y, rtol=1e-5, atol=1e-6, equal_nan=True):
            return jax.tree_util.keystr(path)
    return None


def check_deterministic(subject: Any) -> str:
    """Check that the same key and batch give the same state."""
    batch = subject.batch()
    if part := _first_difference(subject.update(batch), subject.update(batch)):
        raise CheckFailed(
            f"the same key and batch give different states ({part})",
            "draw all random numbers from the key",
        )
    return ""


def check_masked_rows(subject: Any) -> str:
    """Check that masked rows do not change the state."""
    batch = subject.batch()
    one, other = (
        subject.update(corrupt_masked_rows(batch, garbage, subject.rollout))
        for garbage in (0.0, 50.0)
    )
    if part := _first_difference(one, other):
        raise CheckFailed(
            f"numbers in rows whose mask is False change the state ({part})",
            "weight every loss and statistic by batch.mask, as masked_mean(loss, batch.mask) of "
            "sterling.equations.masked_average does",
        )
    return f"{int((~np.asarray(batch.mask)).sum())} of {batch.mask.size} rows"


def _check_discount_used(subject: Subject) -> str:
    """Check that learning depends on the discount at an episode's last row: 0 at an end, 1 at a
    truncation.

    An algorithm with values bootstraps, so the two must differ.
    """
    if not hasattr(subject.algorithm, "value"):
        raise NotChecked("it has no value(state, obs), so it may not bootstrap")
    batch = subject.batch()
    ended, cut = (subject.update(with_final_discount(batch, each)) for each in (0.0, 1.0))
    if _first_difference(ended, cut) is None:
        raise CheckFailed(
            "it learns the same whether an episode ended or was truncated",
            "bootstrap with reward + gamma * batch.discount * value(next_obs); the discount is 0 "
            "at ends and 1 at truncations",
        )
    return ""

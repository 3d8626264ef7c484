"""What one act and one update of an algorithm must keep to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling.checking.batch import (
    SPACES,
    made_batch,
    observations,
    problem,
    with_discount,
    with_garbage,
)
from sterling.checking.finding import Check, Unseen, Wrong
from sterling.needs import FRESH
from sterling.types import Signals

ROWS = 256  # observations that are acted on


class Subject:
    """An algorithm, its settings, and a fresh state of it for one kind of actions."""

    def __init__(self, algorithm: Any, config: Any, form: str):
        self.algorithm, self.config, self.form = algorithm, config, form
        self.needs, self.spec = algorithm.needs(config), problem(form)
        self.rollout = self.needs.of(FRESH)
        self.state = algorithm.init(jax.random.key(0), self.spec, config)
        self.learn = jax.jit(algorithm.learn)

    def batch(self) -> Any:
        """A batch with ends, cuts and rows without a mask."""
        return made_batch(self.algorithm, self.state, self.needs)

    def learned(self, batch: Any, key: int = 1) -> Any:
        """The state after one update."""
        return self.learn(self.state, batch, jax.random.key(key))[0]


def update_checks(subject: Subject) -> Iterator[Check]:
    """Yield the checks of ``act`` and ``learn``."""
    algorithm, of = subject.algorithm, f" ({subject.form} actions)"
    yield f"act answers in the action space{of}", lambda: _acts(subject), algorithm.act
    yield f"act is a function of its key{of}", lambda: _repeats(subject), algorithm.act
    yield f"act explores by its key{of}", lambda: _explores(subject), algorithm.act
    learn = algorithm.learn
    yield f"learn keeps shapes and types{of}", lambda: keeps(subject), learn
    yield f"learn is a function of its key{of}", lambda: learns_alike(subject), learn
    yield f"masked rows teach nothing{of}", lambda: masks(subject), learn
    yield f"ends and cuts are told apart{of}", lambda: _discounts(subject), learn


def _acts(subject: Subject) -> str:
    space: Any = SPACES[subject.form]
    for explore in (True, False):
        obs = jnp.asarray(observations(ROWS, 1))
        answer = subject.algorithm.act(subject.state, obs, jax.random.key(2), explore)
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            raise Wrong(f"act returns {answer!r:.80}", "return (actions, extras), extras a dict")
        action, wanted = np.asarray(answer[0]), (ROWS, *(space.shape or ()))
        if action.shape != wanted:
            raise Wrong(f"{ROWS} observations get actions of shape {action.shape}, not {wanted}")
        if subject.form == "discrete" and action.dtype.kind not in "iu":
            raise Wrong(f"choices are {action.dtype}", "return integers")
        inside = [space.contains(each.astype(space.dtype)) for each in action]
        if not all(inside) and subject.form == "discrete":
            raise Wrong(f"{action[np.argmin(inside)]} is none of the {space.n} choices")
        if not np.isfinite(action).all():
            raise Wrong("an action is NaN or infinite")
    return ""


def _act(subject: Subject, key: int, explore: bool) -> np.ndarray:
    obs = jnp.asarray(observations(ROWS, 1))
    return np.asarray(subject.algorithm.act(subject.state, obs, jax.random.key(key), explore)[0])


def _repeats(subject: Subject) -> str:
    if not np.array_equal(_act(subject, 2, True), _act(subject, 2, True)):
        raise Wrong("the same key gives other actions", "draw all chance from the key")
    return ""


def _explores(subject: Subject) -> str:
    if np.array_equal(_act(subject, 2, True), _act(subject, 3, True)):
        raise Wrong(
            f"with explore=True two keys give the same actions for {ROWS} observations",
            "draw from the key that act is given, as jax.random.categorical(key, logits)",
        )
    return ""


def keeps(subject: Any) -> str:
    """Whether an update returns a state of the same shapes and types, and numbers as metrics."""
    answer = subject.learn(subject.state, subject.batch(), jax.random.key(1))
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], Signals):
        raise Wrong(f"learn returns {type(answer).__name__}", "return (state, Signals(metrics))")
    before = jax.tree_util.tree_leaves_with_path(subject.state)
    after = jax.tree_util.tree_leaves_with_path(answer[0])
    if [path for path, _ in before] != [path for path, _ in after]:
        raise Wrong("the state's structure changes", "return a state of the same parts")
    for (path, one), (_, two) in zip(before, after, strict=True):
        old, new = (jax.typeof(x) if hasattr(x, "dtype") else jax.typeof(jnp.asarray(x))
                    for x in (one, two))  # fmt: skip
        if (old.shape, old.dtype) != (new.shape, new.dtype):
            name = jax.tree_util.keystr(path)
            raise Wrong(
                f"the state's {name} was {old.dtype}{list(old.shape)} and becomes "
                f"{new.dtype}{list(new.shape)}",
                f"make it so in init, or {name}.astype",
            )
    bad = [name for name, value in answer[1].metrics.items() if jnp.shape(value) != ()]
    if bad:
        raise Wrong(f"the metric {bad[0]} is no single number", "report its mean over the batch")
    return f"{len(after)} leaves"


def _difference(one: Any, other: Any) -> str | None:
    """The first leaf in which two states differ beyond rounding."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(one), jax.tree.leaves(other), strict=True)
    for (path, first), second in pairs:
        x, y = np.asarray(first, np.float64), np.asarray(second, np.float64)
        if not np.allclose(x, y, rtol=1e-5, atol=1e-6, equal_nan=True):
            return jax.tree_util.keystr(path)
    return None


def learns_alike(subject: Any) -> str:
    """Whether the same key and batch teach the same."""
    batch = subject.batch()
    if part := _difference(subject.learned(batch), subject.learned(batch)):
        raise Wrong(f"the same key and batch give another state ({part})", "draw from the key only")
    return ""


def masks(subject: Any) -> str:
    """Whether rows that are no experience teach nothing."""
    batch = subject.batch()
    one, other = (subject.learned(with_garbage(batch, garbage, subject.rollout))
                  for garbage in (0.0, 50.0))  # fmt: skip
    if part := _difference(one, other):
        raise Wrong(
            f"numbers in rows whose mask is False change the state ({part})",
            "weight every loss and statistic by batch.mask, as masked_mean(loss, batch.mask) of "
            "sterling.equations.average does",
        )
    return f"{int((~np.asarray(batch.mask)).sum())} of {batch.mask.size} rows"


def _discounts(subject: Subject) -> str:
    """An algorithm with values bootstraps, so what it learns depends on the discount at a last
    row: 0 where the world ended, 1 where the episode was cut."""
    if not hasattr(subject.algorithm, "value"):
        raise Unseen("it offers no value(state, obs), so it need not bootstrap")
    batch = subject.batch()
    ended, cut = (subject.learned(with_discount(batch, each)) for each in (0.0, 1.0))
    if _difference(ended, cut) is None:
        raise Wrong(
            "it learns the same whether an episode ended or was cut",
            "bootstrap by reward + gamma * batch.discount * value(next_obs): the discount is 0 "
            "at ends and 1 at cuts",
        )
    return ""

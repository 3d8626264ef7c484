"""Checks of one ``act`` and one ``learn`` of an algorithm, on batches made by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jax.interpreters import partial_eval

from sterling.checking.example_batch import (
    corrupt_masked_rows,
    make_batch,
    make_spec,
    random_observations,
    with_final_discount,
)
from sterling.checking.review_findings import Check, CheckFailed
from sterling.checking.state_differences import StateDifference, state_difference
from sterling.envs.hosted.shared_memory import space_leaves
from sterling.needs.feed import FRESH
from sterling.problem.agent_axis import REWARD as AGENTS_REWARD
from sterling.system.shown_values import shown_value
from sterling.types import Record, Signals

ROWS = 256  # observations given to ``act``
REWARDS = (AGENTS_REWARD, "episode/return", "reward_now")  # extras that are made of rewards
RANDOM_DRAWS = ("random_bits", "threefry2x32", "rng_bit_generator")  # JAX's operations


class Subject:
    """An algorithm, its settings, and a new state of it for one kind of actions."""

    learner, explores = "learn", True

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

    def act(self, key: int, explore: bool) -> tuple[Any, int]:
        """Return what ``act`` returns for random observations, and their number."""
        obs = jnp.asarray(random_observations(ROWS, 1))
        return self.algorithm.act(self.state, obs, jax.random.key(key), explore), ROWS


def update_checks(subjects: list[Any], label: str) -> Iterator[Check]:
    """Yield the checks of ``act`` and of each feed's learner, of which there is one in each of
    ``subjects``."""
    for at, subject in enumerate(subjects):
        if at == 0:
            yield from act_checks(subject, label)
        yield from learn_checks(subject, label)
    if subjects:
        yield (
            f"learn separates ends from truncations{label}",
            lambda: check_discount_used(subjects),
            getattr(subjects[0].algorithm, subjects[0].learner),
        )


def act_checks(subject: Any, label: str) -> Iterator[Check]:
    """Yield the checks of ``act``, or ``recall``."""
    name = "recall" if hasattr(subject.algorithm, "recall") else "act"
    code = getattr(subject.algorithm, name)
    yield (
        f"{name} returns actions in the action space{label}",
        lambda: check_actions(subject, name),
        code,
    )
    yield (
        f"{name} returns the same for the same key{label}",
        lambda: _check_repeatable(subject),
        code,
    )
    if subject.explores:
        yield (
            f"{name} explores differently with another key{label}",
            lambda: _check_explores(subject),
            code,
        )


def learn_checks(subject: Any, label: str) -> Iterator[Check]:
    """Yield the checks of one update."""
    learner = subject.learner
    code = getattr(subject.algorithm, learner)
    yield f"{learner} keeps shapes and types{label}", lambda: check_shapes_kept(subject), code
    yield (
        f"{learner} returns the same for the same key{label}",
        lambda: check_deterministic(subject),
        code,
    )
    yield f"{learner} draws from its key{label}", lambda: check_key_used(subject), code
    yield f"{learner} ignores masked rows{label}", lambda: check_masked_rows(subject), code


def check_actions(subject: Any, name: str) -> str:
    """Check that actions have the form of the action space; ``name`` is the function that chooses
    them."""
    for explore in (True, False):
        answer, rows = subject.act(2, explore)
        if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
            wanted = "(actions, memory, extras)" if name == "recall" else "(actions, extras)"
            raise CheckFailed(
                f"{name} returns {shown_value(answer)}", f"return {wanted}, extras a dict"
            )
        parts = zip(space_leaves(subject.spec.action), jax.tree.leaves(answer[0]), strict=True)
        for (_, space), leaf in parts:
            _check_action_part(space, np.asarray(leaf), rows)
    return ""


def _check_action_part(space: Any, action: np.ndarray, rows: int) -> None:
    """Raise CheckFailed unless the actions ``(row, ...)`` have the form of the space. Continuous
    ones may lie outside: they are clipped."""
    if action.shape != (rows, *(space.shape or ())):
        raise CheckFailed(
            f"{rows} observations get actions of shape {action.shape}, not "
            f"{(rows, *(space.shape or ()))}"
        )
    if isinstance(space, spaces.Box):
        if not np.isfinite(action).all():
            raise CheckFailed("an action is NaN or infinite")
        return
    if action.dtype.kind not in "iu":
        raise CheckFailed(f"discrete actions have type {action.dtype}", "return integers")
    inside = [space.contains(each.astype(space.dtype)) for each in action]
    if not all(inside):
        choices = f"the {space.n} choices" if hasattr(space, "n") else f"{space}"
        raise CheckFailed(f"action {action[np.argmin(inside)]} is none of {choices}")


def _same_actions(subject: Any, one: int, other: int) -> bool:
    """Whether exploring with two keys gives the same actions."""
    first, second = (jax.tree.leaves(subject.act(key, True)[0][0]) for key in (one, other))
    return all(np.array_equal(x, y) for x, y in zip(first, second, strict=True))


def _check_repeatable(subject: Any) -> str:
    if not _same_actions(subject, 2, 2):
        raise CheckFailed(
            "the same key gives different actions", "draw all random numbers from the key"
        )
    return ""


def _check_explores(subject: Any) -> str:
    if _same_actions(subject, 2, 3):
        rows = subject.act(2, True)[1]
        raise CheckFailed(
            f"with explore=True two keys give the same actions for {rows} observations",
            "draw from the key that act is given, such as jax.random.categorical(key, logits)",
        )
    return ""


def check_key_used(subject: Any) -> str:
    """Check that an update that draws random numbers depends on its key."""
    key = jax.random.key(1)
    traced = jax.make_jaxpr(subject.learn)(subject.state, subject.batch(), key).jaxpr
    kept, used = partial_eval.dce_jaxpr(traced, [True] * len(traced.outvars))
    if not any(name in str(kept) for name in RANDOM_DRAWS):
        return "it draws none"
    if any(_is_key(each.aval) for each, read in zip(traced.invars, used, strict=True) if read):
        return ""
    raise CheckFailed(
        "it draws random numbers but ignores its key: all updates draw the same ones",
        "draw from the key that it is given, such as random_keys.fold(key, NAME)",
    )


def _is_key(kind: Any) -> bool:
    return jax.dtypes.issubdtype(kind.dtype, jax.dtypes.prng_key)


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


def _beyond_rounding(one: Any, other: Any) -> Any:
    """Return the numbers of two leaves; the first for both if they differ by rounding alone."""
    near = np.allclose(
        one.astype(np.float64), other.astype(np.float64), rtol=1e-5, atol=1e-6, equal_nan=True
    )
    return (one, one) if near else (one, other)


def difference_beyond_rounding(one: Any, other: Any) -> StateDifference | None:
    """Return how two states differ beyond rounding, None if they do not."""
    return state_difference(one, other, _beyond_rounding)


def check_deterministic(subject: Any) -> str:
    """Check that the same key and batch give the same state."""
    batch = subject.batch()
    if part := difference_beyond_rounding(subject.update(batch), subject.update(batch)):
        raise CheckFailed(
            f"the same key and batch give different states ({part})",
            "draw all random numbers from the key",
        )
    return ""


def check_masked_rows(subject: Any) -> str:
    """Check that masked rows do not change the state; of a batch that has none, all are masked."""
    batch = subject.batch()
    if batch.mask.all():
        batch = Record(**{**vars(batch), "mask": jnp.zeros_like(batch.mask)})
    one, other = (
        subject.update(corrupt_masked_rows(batch, garbage, subject.rollout))
        for garbage in (0.0, 50.0)
    )
    if part := difference_beyond_rounding(one, other):
        raise CheckFailed(
            f"numbers in rows whose mask is False change the state ({part})",
            "weight every loss and statistic by batch.mask, as masked_mean(loss, batch.mask) of "
            "sterling.equations.masked_average does",
        )
    return f"{int((~np.asarray(batch.mask)).sum())} of {batch.mask.size} rows"


def check_discount_used(subjects: list[Any]) -> str:
    """Check that learning depends on the discount at an episode's last row: 0 at an end, 1 at a
    truncation.

    An algorithm that learns values of rewards bootstraps, so the two must differ from one feed at
    least; without ``value``, or if it learns from no rewards, it need not.
    """
    for subject in subjects:
        batch = subject.batch()
        ended, cut = (subject.update(with_final_discount(batch, each)) for each in (0.0, 1.0))
        if difference_beyond_rounding(ended, cut) is not None:
            return ""
    if not hasattr(subjects[0].algorithm, "value"):
        return "it learns nothing from the discount, and has no value(state, obs)"
    if not any(_learns_from_rewards(subject) for subject in subjects):
        return "it learns from neither rewards nor discounts"
    raise CheckFailed(
        "it learns the same whether an episode ended or was truncated",
        "bootstrap with reward + gamma * batch.discount * value(next_obs); the discount is 0 "
        "at ends and 1 at truncations",
    )


def may_learn_from_rewards(subjects: list[Any]) -> bool:
    """Whether another reward changes an update; True also where updates fail, which their checks
    say."""
    try:
        return not subjects or any(_learns_from_rewards(subject) for subject in subjects)
    except (Exception, SystemExit):
        return True


def _learns_from_rewards(subject: Any) -> bool:
    batch = subject.batch()
    extras = {name: 1.0 - 2.0 * x if name in REWARDS else x for name, x in batch.extras.items()}
    other = Record(**{**vars(batch), "reward": 1.0 - 2.0 * batch.reward, "extras": extras})
    return difference_beyond_rounding(subject.update(batch), subject.update(other)) is not None

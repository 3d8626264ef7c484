"""Learning from a log in one compiled loop over minibatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sterling import keys
from sterling.data import Dataset
from sterling.data.device import OnDevice, to_device
from sterling.judging.rows import episode_of
from sterling.types import Mistake, Record, Signals

UPDATES = 1000  # in one program
FILLED = 1 << 20  # rows beyond which a log is not filled up: a program of its own costs less
HELD = 1 << 28  # bytes of minibatches held at once where the log stays on the host
State = TypeVar("State")
Learn = Callable[[Any, Record, Any], tuple[Any, Signals]]


class Counted(eqx.Module):
    """A log on the device, filled up to a power of two so that logs of like sizes share a program;
    and how often each of several learners counts each row's episode."""

    data: OnDevice
    rows: Int[Array, ""]
    episode: Int[Array, "row"]
    counts: Float[Array, "learner episode"]

    def batch(self, index: Int[Array, "batch"]) -> Record:
        """Rows, with ``extras["weight"]``."""
        record = self.data.transitions(index)
        return _weighted(record, self.counts[:, self.episode[index]])


def fit(
    learn: Learn,
    state: State,
    dataset: Dataset,
    *,
    updates: int,
    batch: int,
    key: Key[Array, ""],
    counts: Float[np.ndarray, "learner episode"] | None = None,
) -> tuple[State, dict[str, float]]:
    """``updates`` times ``learn(state, batch, key)``; the state, and the last metrics.

    Rows are drawn with equal chances. ``counts`` says how often each of several learners inside of
    ``state`` counts each episode (a bootstrap; all once): ``extras["weight"]`` is ``(batch,
    learner)``. Raises Mistake for numbers that became infinite.
    """
    if updates < 1 or not dataset.rows:
        raise Mistake(f"learning takes updates and rows; got {updates} and {dataset.rows}")
    episode = episode_of(dataset)
    given = np.ones((1, int(episode[-1]) + 1)) if counts is None else counts
    data = to_device(dataset)
    state = jax.tree.map(_number, state)
    metrics: dict[str, Array] = {}
    if isinstance(data, OnDevice):
        filled = _filled(data, episode, given)
        for begin in range(0, updates, UPDATES):
            count = min(UPDATES, updates - begin)
            now = keys.fold(key, "fit", begin)
            state, metrics = _chunk(learn, state, filled, now, count=count, batch=batch)
    else:
        state, metrics = _from_host(
            learn, state, dataset, given, key=key, updates=updates, batch=batch
        )
    found = {name: float(value) for name, value in metrics.items()}
    if not all(np.isfinite(value) for value in found.values()):
        raise Mistake(f"learning from the log diverged ({found}); take a smaller lr")
    return state, found


@eqx.filter_jit
def _chunk(
    learn: Learn, state: Any, data: Counted, key: Key[Array, ""], *, count: int, batch: int
) -> tuple[Any, dict[str, Array]]:
    def update(state: Any, at: Array) -> tuple[Any, dict[str, Array]]:
        index = jax.random.randint(keys.fold(key, "rows", at), (batch,), 0, data.rows, jnp.int32)
        state, signals = learn(state, data.batch(index), keys.fold(key, "learn", at))
        return state, signals.metrics

    return _scanned(update, state, jnp.arange(count, dtype=jnp.int32))


def _from_host(
    learn: Learn,
    state: Any,
    dataset: Dataset,
    counts: Float[np.ndarray, "learner episode"],
    *,
    key: Key[Array, ""],
    updates: int,
    batch: int,
) -> tuple[Any, dict[str, Array]]:
    """The same where rows come from a file, some minibatches at a time."""
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    episode = episode_of(dataset)
    metrics: dict[str, Array] = {}
    each = sum(leaf.nbytes for leaf in jax.tree.leaves(dataset.transitions(np.zeros(batch, int))))
    size = max(min(UPDATES, HELD // max(each, 1)), 1)
    for begin in range(0, updates, size):
        shape = (min(size, updates - begin), batch)
        index = random.integers(0, dataset.rows, shape)
        weight = jnp.asarray(counts[:, episode[index]], jnp.float32)
        record = dataset.transitions(index)
        record = eqx.tree_at(lambda r: r.extras, record, {"weight": jnp.moveaxis(weight, 0, -1)})
        state, metrics = _given(learn, state, record, keys.fold(key, "fit", begin))
    return state, metrics


@eqx.filter_jit
def _given(
    learn: Learn, state: Any, batches: Record, key: Key[Array, ""]
) -> tuple[Any, dict[str, Array]]:
    def update(state: Any, each: tuple[Record, Array]) -> tuple[Any, dict[str, Array]]:
        state, signals = learn(state, each[0], keys.fold(key, "learn", each[1]))
        return state, signals.metrics

    count = batches.reward.shape[0]
    return _scanned(update, state, (batches, jnp.arange(count, dtype=jnp.int32)))


def _scanned(update: Any, state: Any, over: Any) -> tuple[Any, dict[str, Array]]:
    state, metrics = jax.lax.scan(update, state, over)
    return state, jax.tree.map(lambda x: x.mean(), metrics)


def _number(x: Any) -> Any:
    """Plain numbers as arrays: another number is no other program."""
    return jnp.asarray(x, jnp.float32) if isinstance(x, float) else x


def _weighted(record: Record, counts: Float[Array, "learner batch"]) -> Record:
    return eqx.tree_at(lambda r: r.extras, record, {"weight": counts.T})


def _filled(
    data: OnDevice, episode: Int[np.ndarray, "row"], counts: Float[np.ndarray, "learner episode"]
) -> Counted:
    """Arrays of ``rows`` and of ``rows + episodes`` entries, each filled up to a power of two."""

    def fill(x: Any) -> Array:
        if len(x) > FILLED:
            return jnp.asarray(x)
        size = 1 << (x.shape[0] - 1).bit_length()
        return jnp.asarray(np.pad(np.asarray(x), [(0, size - len(x))] + [(0, 0)] * (x.ndim - 1)))

    bare = eqx.tree_at(lambda d: d.extras, data, {})
    wide = jnp.asarray(fill(counts.T.astype(np.float32)).T)
    rows = jnp.asarray(data.rows, jnp.int32)
    return Counted(jax.tree.map(fill, bare), rows, fill(episode), wide)

"""Fit a learner to a dataset in a compiled loop over minibatches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from sterling import random_keys
from sterling.data import Dataset
from sterling.data.device_dataset import DeviceDataset, to_device
from sterling.evaluation.off_policy.log_rows import episode_numbers
from sterling.types import Mistake, Record, Signals

UPDATES_PER_PROGRAM = 1000  # updates per compiled program
MAX_PADDED_ROWS = 1 << 20  # datasets with more rows are not padded: compiling a program costs less
# bytes of minibatches in memory at once, if the dataset stays on the host
HOST_BATCH_BYTES = 1 << 28
State = TypeVar("State")
Learn = Callable[[Any, Record, Any], tuple[Any, Signals]]


class WeightedLog(eqx.Module):
    """A dataset on the device, padded to a power of two so that datasets of similar size share a
    program, with the weight of each row's episode for each of several learners."""

    data: DeviceDataset
    rows: Int[Array, ""]
    episode: Int[Array, "row"]
    counts: Float[Array, "learner episode"]

    def batch(self, index: Int[Array, "batch"]) -> Record:
        """Return rows, with ``extras["weight"]``."""
        record = self.data.transitions(index)
        return _with_weights(record, self.counts[:, self.episode[index]])


def fit_minibatches(
    learn: Learn,
    state: State,
    dataset: Dataset,
    *,
    updates: int,
    batch: int,
    key: Key[Array, ""],
    counts: Float[np.ndarray, "learner episode"] | None = None,
) -> tuple[State, dict[str, float]]:
    """Apply ``learn(state, batch, key)`` ``updates`` times; return the state and the last metrics.

    Rows are drawn uniformly. ``counts`` says how often each of several learners inside ``state``
    counts each episode (a bootstrap; None: once): ``extras["weight"]`` is ``(batch, learner)``.
    Raises Mistake if metrics become infinite or NaN.
    """
    if updates < 1 or not dataset.rows:
        raise Mistake(
            f"cannot fit with {updates} updates on {dataset.rows} rows; both must be at least 1"
        )
    episode = episode_numbers(dataset)
    given = np.ones((1, int(episode[-1]) + 1)) if counts is None else counts
    data = to_device(dataset)
    state = jax.tree.map(_as_array, state)
    metrics: dict[str, Array] = {}
    if isinstance(data, DeviceDataset):
        filled = _pad_log(data, episode, given)
        for begin in range(0, updates, UPDATES_PER_PROGRAM):
            count = min(UPDATES_PER_PROGRAM, updates - begin)
            now = random_keys.fold(key, "fit", begin)
            state, metrics = _run_updates(learn, state, filled, now, count=count, batch=batch)
    else:
        state, metrics = _fit_from_host(
            learn, state, dataset, given, key=key, updates=updates, batch=batch
        )
    found = {name: float(value) for name, value in metrics.items()}
    if not all(np.isfinite(value) for value in found.values()):
        raise Mistake(f"fitting to the dataset diverged ({found}); use a smaller lr")
    return state, found


@eqx.filter_jit
def _run_updates(
    learn: Learn, state: Any, data: WeightedLog, key: Key[Array, ""], *, count: int, batch: int
) -> tuple[Any, dict[str, Array]]:
    def update(state: Any, at: Array) -> tuple[Any, dict[str, Array]]:
        index = jax.random.randint(
            random_keys.fold(key, "rows", at), (batch,), 0, data.rows, jnp.int32
        )
        state, signals = learn(state, data.batch(index), random_keys.fold(key, "learn", at))
        return state, signals.metrics

    return _scan_updates(update, state, jnp.arange(count, dtype=jnp.int32))


def _fit_from_host(
    learn: Learn,
    state: Any,
    dataset: Dataset,
    counts: Float[np.ndarray, "learner episode"],
    *,
    key: Key[Array, ""],
    updates: int,
    batch: int,
) -> tuple[Any, dict[str, Array]]:
    """Fit from a file that does not fit on the device, reading several minibatches at a time."""
    random = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    episode = episode_numbers(dataset)
    metrics: dict[str, Array] = {}
    each = sum(leaf.nbytes for leaf in jax.tree.leaves(dataset.transitions(np.zeros(batch, int))))
    size = max(min(UPDATES_PER_PROGRAM, HOST_BATCH_BYTES // max(each, 1)), 1)
    for begin in range(0, updates, size):
        shape = (min(size, updates - begin), batch)
        index = random.integers(0, dataset.rows, shape)
        weight = jnp.asarray(counts[:, episode[index]], jnp.float32)
        record = dataset.transitions(index)
        record = eqx.tree_at(lambda r: r.extras, record, {"weight": jnp.moveaxis(weight, 0, -1)})
        state, metrics = _run_given_batches(
            learn, state, record, random_keys.fold(key, "fit", begin)
        )
    return state, metrics


@eqx.filter_jit
def _run_given_batches(
    learn: Learn, state: Any, batches: Record, key: Key[Array, ""]
) -> tuple[Any, dict[str, Array]]:
    def update(state: Any, each: tuple[Record, Array]) -> tuple[Any, dict[str, Array]]:
        state, signals = learn(state, each[0], random_keys.fold(key, "learn", each[1]))
        return state, signals.metrics

    count = batches.reward.shape[0]
    return _scan_updates(update, state, (batches, jnp.arange(count, dtype=jnp.int32)))


def _scan_updates(update: Any, state: Any, over: Any) -> tuple[Any, dict[str, Array]]:
    state, metrics = jax.lax.scan(update, state, over)
    return state, jax.tree.map(lambda x: x.mean(), metrics)


def _as_array(x: Any) -> Any:
    """Convert Python floats to arrays, so that another value does not compile another program."""
    return jnp.asarray(x, jnp.float32) if isinstance(x, float) else x


def _with_weights(record: Record, counts: Float[Array, "learner batch"]) -> Record:
    return eqx.tree_at(lambda r: r.extras, record, {"weight": counts.T})


def _pad_log(
    data: DeviceDataset,
    episode: Int[np.ndarray, "row"],
    counts: Float[np.ndarray, "learner episode"],
) -> WeightedLog:
    """Pad all arrays to a power of two entries, each."""

    def fill(x: Any) -> Array:
        if len(x) > MAX_PADDED_ROWS:
            return jnp.asarray(x)
        size = 1 << (x.shape[0] - 1).bit_length()
        return jnp.asarray(np.pad(np.asarray(x), [(0, size - len(x))] + [(0, 0)] * (x.ndim - 1)))

    bare = eqx.tree_at(lambda d: d.extras, data, {})
    wide = jnp.asarray(fill(counts.T.astype(np.float32)).T)
    rows = jnp.asarray(data.rows, jnp.int32)
    return WeightedLog(jax.tree.map(fill, bare), rows, fill(episode), wide)

"""Label rewards by optimal transport to demonstrations (Luo 2023, "Optimal transport for offline
imitation learning", arXiv:2303.13971).

An episode's steps, each of mass 1/T, are moved onto a demonstration's steps, each of mass 1/T', at
the least total cost. A step's reward decreases with the cost that it pays:

    C[t,t'] = 1 - cos(x_t, x'_t')
    P       = argmin_P <P, C> - epsilon H(P)      sum_t' P[t,t'] = 1/T,  sum_t P[t,t'] = 1/T'
    r_t     = -sum_t' P[t,t'] C[t,t']
    label   = alpha exp(beta T r_t)

with the demonstration that gives the largest total. Deviations from the authors' code: x are
standardised observations (theirs are raw); T is the episode's own length, and its masses sum to 1
(their T is always 1000, and their masses sum to n/1000 for n steps); rewards are not rescaled by
the range of the returns.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sterling.data.dataset import Dataset
from sterling.data.episode_columns import Arrays, Block
from sterling.data.relabel.episode_vectors import (
    Standardiser,
    Vectoriser,
    check_rows,
    check_same_spaces,
    replace_columns,
)
from sterling.types import Mistake

COSTS_AT_ONCE = 1 << 22  # entries of cost matrices processed at a time
TOLERANCE = 1e-4  # iterations stop once at most this share of the mass is on wrong columns
MIN_PADDED_LENGTH = (
    8  # episodes are padded to powers of two, at least this, so that few programs compile
)


def otr(
    dataset: Dataset,
    demonstrations: Dataset,
    *,
    actions: bool = False,
    standardise: bool = True,
    epsilon: float = 0.01,
    iterations: int = 100,
    alpha: float = 5.0,
    beta: float | None = None,
) -> Dataset:
    """Label ``dataset`` with rewards that measure its similarity to the demonstrations.

    ``actions``: compare observations and actions instead of observations. ``standardise``: by the
    dataset's moments. ``epsilon``: entropic regularisation, in units of the cost, which lies in
    [0, 2]. ``iterations``: the most Sinkhorn iterations. ``beta``: None means 5 divided by the
    number of components compared, as the authors use for locomotion; they use 1 in mazes. Defaults
    are those of their code.

    Discounts, actions and other columns are kept; reference scores are removed, since they belong
    to other rewards. Raises Mistake for different spaces, empty demonstrations, pictures and NaN.
    """
    _check_datasets(dataset, demonstrations, actions)
    if not (epsilon > 0.0 and iterations > 0):
        raise Mistake(f"epsilon and iterations must be positive; got {epsilon} and {iterations}.")
    own, shown = _row_vectors(dataset, actions), _row_vectors(demonstrations, actions)
    if standardise:
        scale = Standardiser(own)
        own, shown = scale(own), scale(shown)
    targets = _pad_episodes(
        _unit_vectors(shown), demonstrations.lengths[demonstrations.lengths > 0]
    )
    slope = 5.0 / own.shape[1] if beta is None else beta
    reward = _label_rewards(
        _unit_vectors(own), dataset.lengths, targets, (epsilon, alpha, slope), iterations
    )

    def change(block: Block, rows: slice) -> Arrays:
        return {"reward": reward[rows]}

    compared = "observations and actions" if actions else "observations"
    count = f"{len(demonstrations)} demonstration{'s' if len(demonstrations) > 1 else ''}"
    note = (
        f"rewards by OTR (arXiv:2303.13971) from {count} with hash {demonstrations.hash[:12]}: "
        f"{compared}, epsilon {epsilon:g}, alpha {alpha:g}, beta {slope:g}"
    )
    facts = dataclasses.replace(dataset.facts.with_notes(note), reference=None)
    return replace_columns(dataset, dataset.action_space, facts, change)


def _check_datasets(dataset: Dataset, demonstrations: Dataset, actions: bool) -> None:
    """Raise Mistake unless both datasets have rows and the same spaces of what is compared."""
    check_rows(dataset, "episodes")
    check_rows(demonstrations, "demonstrations")
    spaces = [(dataset.obs_space, demonstrations.obs_space, "obs")]
    if actions:
        spaces.append((dataset.action_space, demonstrations.action_space, "action"))
    for own, shown, kind in spaces:
        check_same_spaces(own, shown, kind, "dataset and demonstrations")


@partial(jax.jit, static_argnames="iterations")
def transport_plan(
    cost: Float[Array, "step target"],
    steps: Bool[Array, "step"],
    targets: Bool[Array, "target"],
    epsilon: Float[Array, ""] | float,
    iterations: int,
) -> Float[Array, "step target"]:
    """Return the entropic transport plan between uniform masses on the valid ``steps`` and
    ``targets`` (masks; the rest is padding).

    It makes at most ``iterations`` Sinkhorn iterations on log-potentials (Peyre 2019,
    "Computational optimal transport", remark 4.23). The last half-iteration is over the steps, so
    each step has exactly its mass.
    """
    scaled = -cost / epsilon
    count = jnp.maximum(jnp.sum(steps), 1).astype(jnp.float32)
    each = jnp.maximum(jnp.sum(targets), 1).astype(jnp.float32)

    def of_steps(column: Array) -> Array:
        free = jax.nn.logsumexp(scaled + column[None], 1, where=targets[None])
        return jnp.where(steps, -jnp.log(count) - free, 0.0)

    def of_targets(row: Array) -> Array:
        free = jax.nn.logsumexp(scaled + row[:, None], 0, where=steps[:, None])
        return jnp.where(targets, -jnp.log(each) - free, 0.0)

    def continues(carry: tuple[Array, Array, Array, Array]) -> Array:
        return (carry[0] < iterations) & (carry[3] > TOLERANCE)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        done, row, column, _ = carry
        fresh = of_targets(row)
        wrong = jnp.where(targets, jnp.abs(jnp.expm1(column - fresh)), 0.0).sum() / each
        return done + 1, of_steps(fresh), fresh, wrong

    start = jnp.zeros(targets.shape)
    first = (jnp.zeros((), jnp.int32), of_steps(start), start, jnp.asarray(jnp.inf, jnp.float32))
    _, row, column, _ = jax.lax.while_loop(continues, step, first)
    plan = jnp.exp(scaled + row[:, None] + column[None])
    return jnp.where(steps[:, None] & targets[None], plan, 0.0)


@partial(jax.jit, static_argnames="iterations")
def episode_rewards(
    episodes: tuple[Float[Array, "episode step n"], Int[Array, "episode"]],
    shown: tuple[Float[Array, "demonstration target n"], Int[Array, "demonstration"]],
    how: tuple[Array | float, Array | float, Array | float],
    iterations: int,
) -> Float[Array, "episode step"]:
    """Return the rewards of padded episodes of unit vectors, by the demonstration that gives each
    episode the largest total; ``how`` is (epsilon, alpha, beta)."""
    epsilon, alpha, beta = how

    def pay(x: Array, length: Array, target: Array, steps: Array) -> Array:
        cost = 1.0 - jnp.dot(x, target.T, precision="highest")
        real = jnp.arange(x.shape[0]) < length
        plan = transport_plan(cost, real, jnp.arange(target.shape[0]) < steps, epsilon, iterations)
        paid = -jnp.sum(plan * cost, 1) * length.astype(jnp.float32)
        return jnp.where(real, alpha * jnp.exp(beta * paid), 0.0)

    def against(one: tuple[Array, Array]) -> Array:
        return jax.vmap(pay, (0, 0, None, None))(*episodes, *one)

    paid = jax.lax.map(against, shown)
    best = jnp.argmax(paid.sum(2), 0)
    return jnp.take_along_axis(paid, best[None, :, None], 0)[0]


def _label_rewards(
    vectors: Float[np.ndarray, "row n"],
    lengths: Int[np.ndarray, "episode"],
    targets: tuple[np.ndarray, np.ndarray],
    how: tuple[float, float, float],
    iterations: int,
) -> Float[np.ndarray, "row"]:
    """Label all rows; episodes of similar lengths are batched together, so that few are padded."""
    reward, begins = np.zeros(len(vectors), np.float32), np.cumsum(lengths) - lengths
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    sizes = np.array([_padded_length(int(length)) for length in lengths[order]])
    for size in np.unique(sizes):
        group = order[sizes == size]
        many = min(
            max(COSTS_AT_ONCE // (int(size) * targets[0].shape[1]), 1), _padded_length(len(group))
        )
        for low in range(0, len(group), many):
            some = group[low : low + many]
            some = np.concatenate([some, np.repeat(some[:1], many - len(some))])
            rows = [np.arange(begins[at], begins[at] + lengths[at]) for at in some]
            batch = _pad_episodes(vectors[np.concatenate(rows)], lengths[some])
            made: np.ndarray = np.asarray(episode_rewards(batch, targets, how, iterations))
            for own, row in zip(made, rows, strict=True):
                reward[row] = own[: len(row)]
    return reward


def _row_vectors(dataset: Dataset, actions: bool) -> Float[np.ndarray, "row n"]:
    record, spec = dataset.transitions(), dataset.spec
    made = [Vectoriser(spec.obs, "observations")(record.obs)]
    if actions:
        made.append(Vectoriser(spec.action, "actions")(record.action))
    return np.concatenate(made, 1)


def _unit_vectors(vectors: Float[np.ndarray, "row n"]) -> Float[np.ndarray, "row n"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-8)


def _pad_episodes(
    vectors: Float[np.ndarray, "row n"], lengths: Int[np.ndarray, "episode"]
) -> tuple[Float[np.ndarray, "episode step n"], Int[np.ndarray, "episode"]]:
    """Stack concatenated episodes into one array padded with zeros; return it and the lengths."""
    made = np.zeros(
        (len(lengths), _padded_length(int(lengths.max())), vectors.shape[1]), np.float32
    )
    made[np.arange(made.shape[1])[None] < lengths[:, None]] = vectors
    return made, lengths.astype(np.int32)


def _padded_length(length: int) -> int:
    return max(1 << (length - 1).bit_length(), MIN_PADDED_LENGTH)

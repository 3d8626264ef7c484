"""Rewards by optimal transport to demonstrations (Luo 2023, "Optimal transport for offline
imitation learning", arXiv:2303.13971).

An episode's steps, each of mass 1/T, are moved onto a demonstration's, each of mass 1/T', at the
least total cost; what a step pays is its reward:

    C[t,t'] = 1 - cos(x_t, x'_t')
    P       = argmin_P <P, C> - epsilon H(P)      sum_t' P[t,t'] = 1/T,  sum_t P[t,t'] = 1/T'
    r_t     = -sum_t' P[t,t'] C[t,t']
    label   = alpha exp(beta T r_t)

with the demonstration that gives the largest total. Deviations from the authors' code: x are
standardised observations (theirs are raw); T is the episode's own length, and its masses sum to 1
(theirs is always 1000, and theirs sum to n/1000 for n steps); rewards are not rescaled by the range
of the returns.
"""

from __future__ import annotations

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from sterling.data.columns import Arrays, Block
from sterling.data.dataset import Dataset
from sterling.data.relabel.vectors import Scale, Vectors, alike, rewritten, rows_of
from sterling.types import Mistake

AT_ONCE = 1 << 22  # entries of cost matrices that are worked on at a time
TOLERANCE = 1e-4  # mass on the wrong columns at which a plan is good enough
SHORTEST = 8  # episodes are padded to powers of two, at least this: few lengths, few programs


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
    """``dataset`` with rewards that say how near each episode is to the demonstrations.

    ``actions``: compare pairs of observation and action. ``standardise``: by the dataset's
    moments. ``epsilon``: entropic regularisation, in units of the cost, which lies in [0, 2].
    ``iterations``: of Sinkhorn, at most. ``beta``: None is 5 divided by the count of numbers
    compared, the authors' for locomotion; they use 1 in mazes. Defaults are those of their code.

    Discounts, actions and the rest are kept; reference scores are not, being of other rewards.
    Raises Mistake for spaces that differ, empty demonstrations, pictures and NaN.
    """
    rows_of(dataset, "episodes")
    rows_of(demonstrations, "demonstrations")
    alike(dataset.obs_space, demonstrations.obs_space, "obs", "log and demonstrations")
    if actions:
        alike(dataset.action_space, demonstrations.action_space, "action", "log and demonstrations")
    if not (epsilon > 0.0 and iterations > 0):
        raise Mistake(f"epsilon and iterations are above 0; got {epsilon} and {iterations}")
    own, shown = _vectors(dataset, actions), _vectors(demonstrations, actions)
    if standardise:
        scale = Scale(own)
        own, shown = scale(own), scale(shown)
    targets = _padded(_unit(shown), demonstrations.lengths[demonstrations.lengths > 0])
    slope = 5.0 / own.shape[1] if beta is None else beta
    reward = _rewards(_unit(own), dataset.lengths, targets, (epsilon, alpha, slope), iterations)

    def change(block: Block, rows: slice) -> Arrays:
        return {"reward": reward[rows]}

    compared = "observations and actions" if actions else "observations"
    count = f"{len(demonstrations)} demonstration{'s' if len(demonstrations) > 1 else ''}"
    note = (
        f"rewards are OTR's (arXiv:2303.13971), from {count} with hash {demonstrations.hash[:12]}: "
        f"{compared}, epsilon {epsilon:g}, alpha {alpha:g}, beta {slope:g}"
    )
    facts = dataclasses.replace(dataset.facts.noted(note), reference=None)
    return rewritten(dataset, dataset.action_space, facts, change)


@partial(jax.jit, static_argnames="iterations")
def transport(
    cost: Float[Array, "step target"],
    steps: Bool[Array, "step"],
    targets: Bool[Array, "target"],
    epsilon: Float[Array, ""] | float,
    iterations: int,
) -> Float[Array, "step target"]:
    """The entropic plan between uniform masses on the true ``steps`` and ``targets``.

    Sinkhorn's iterations on log-potentials (Peyre 2019, "Computational optimal transport", remark
    4.23), at most ``iterations`` of them. It ends on the steps: each has exactly its mass.
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

    def goes_on(carry: tuple[Array, Array, Array, Array]) -> Array:
        return (carry[0] < iterations) & (carry[3] > TOLERANCE)

    def step(carry: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        done, row, column, _ = carry
        fresh = of_targets(row)
        wrong = jnp.where(targets, jnp.abs(jnp.expm1(column - fresh)), 0.0).sum() / each
        return done + 1, of_steps(fresh), fresh, wrong

    start = jnp.zeros(targets.shape)
    first = (jnp.zeros((), jnp.int32), of_steps(start), start, jnp.asarray(jnp.inf, jnp.float32))
    _, row, column, _ = jax.lax.while_loop(goes_on, step, first)
    plan = jnp.exp(scaled + row[:, None] + column[None])
    return jnp.where(steps[:, None] & targets[None], plan, 0.0)


@partial(jax.jit, static_argnames="iterations")
def labels(
    episodes: tuple[Float[Array, "episode step n"], Int[Array, "episode"]],
    shown: tuple[Float[Array, "demonstration target n"], Int[Array, "demonstration"]],
    how: tuple[Array | float, Array | float, Array | float],
    iterations: int,
) -> Float[Array, "episode step"]:
    """Rewards of padded episodes of unit vectors; ``how`` is epsilon, alpha and beta."""
    epsilon, alpha, beta = how

    def pay(x: Array, length: Array, target: Array, steps: Array) -> Array:
        cost = 1.0 - jnp.dot(x, target.T, precision="highest")
        real = jnp.arange(x.shape[0]) < length
        plan = transport(cost, real, jnp.arange(target.shape[0]) < steps, epsilon, iterations)
        paid = -jnp.sum(plan * cost, 1) * length.astype(jnp.float32)
        return jnp.where(real, alpha * jnp.exp(beta * paid), 0.0)

    def against(one: tuple[Array, Array]) -> Array:
        return jax.vmap(pay, (0, 0, None, None))(*episodes, *one)

    paid = jax.lax.map(against, shown)
    best = jnp.argmax(paid.sum(2), 0)
    return jnp.take_along_axis(paid, best[None, :, None], 0)[0]


def _rewards(
    vectors: Float[np.ndarray, "row n"],
    lengths: Int[np.ndarray, "episode"],
    targets: tuple[np.ndarray, np.ndarray],
    how: tuple[float, float, float],
    iterations: int,
) -> Float[np.ndarray, "row"]:
    """Episodes of like lengths together, so that little is padded."""
    reward, begins = np.zeros(len(vectors), np.float32), np.cumsum(lengths) - lengths
    order = np.argsort(lengths, kind="stable")
    order = order[lengths[order] > 0]
    sizes = np.array([_power(int(length)) for length in lengths[order]])
    for size in np.unique(sizes):
        group = order[sizes == size]
        many = min(max(AT_ONCE // (int(size) * targets[0].shape[1]), 1), _power(len(group)))
        for low in range(0, len(group), many):
            some = group[low : low + many]
            some = np.concatenate([some, np.repeat(some[:1], many - len(some))])
            rows = [np.arange(begins[at], begins[at] + lengths[at]) for at in some]
            batch = _padded(vectors[np.concatenate(rows)], lengths[some])
            made: np.ndarray = np.asarray(labels(batch, targets, how, iterations))
            for own, row in zip(made, rows, strict=True):
                reward[row] = own[: len(row)]
    return reward


def _vectors(dataset: Dataset, actions: bool) -> Float[np.ndarray, "row n"]:
    record, spec = dataset.transitions(), dataset.spec
    made = [Vectors(spec.obs, "observations")(record.obs)]
    if actions:
        made.append(Vectors(spec.action, "actions")(record.action))
    return np.concatenate(made, 1)


def _unit(vectors: Float[np.ndarray, "row n"]) -> Float[np.ndarray, "row n"]:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-8)


def _padded(
    vectors: Float[np.ndarray, "row n"], lengths: Int[np.ndarray, "episode"]
) -> tuple[Float[np.ndarray, "episode step n"], Int[np.ndarray, "episode"]]:
    """Episodes end to end as one array, zeros after the shorter ones, and their lengths."""
    made = np.zeros((len(lengths), _power(int(lengths.max())), vectors.shape[1]), np.float32)
    made[np.arange(made.shape[1])[None] < lengths[:, None]] = vectors
    return made, lengths.astype(np.int32)


def _power(length: int) -> int:
    return max(1 << (length - 1).bit_length(), SHORTEST)

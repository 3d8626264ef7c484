"""The gradient steps by which a bonus learns from the rows that it was asked about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from sterling.equations.minibatches import minibatch_indices
from sterling.nets.optimiser import adam, descend
from sterling.types import Record

MINIBATCH = 256  # rows of a gradient step
T = TypeVar("T")


def train_once(
    learner: tuple[T, optax.OptState],
    rows: Record,
    key: Key[Array, ""],
    loss: Callable[[T, Record, Any], Float[Array, ""]],
    lr: float,
) -> tuple[T, optax.OptState]:
    """Visit all rows once, in random minibatches; return the networks and the state of Adam, which
    ``learner`` holds.

    ``loss(nets, rows, mask)`` is the mean over the rows where ``mask`` is True.
    """
    count = len(rows.mask)

    def step(carry: tuple[T, optax.OptState], index: Int[Array, "minibatch"]) -> tuple[Any, None]:
        nets, optimiser = carry
        taken = jax.tree.map(lambda x: x[index], rows)  # -1, which stands for none, is masked
        grads = jax.grad(loss)(nets, taken, taken.mask & (index >= 0))
        direction, optimiser = adam().update(grads, optimiser)
        return (descend(nets, direction, lr), optimiser), None

    indices = minibatch_indices(key, count, min(MINIBATCH, count), 1)
    return jax.lax.scan(step, learner, indices)[0]


def start_optimiser(nets: Any) -> optax.OptState:
    """Return Adam's state before the first step."""
    return adam().init(nets)


def squared_distance(
    one: Float[Array, "... features"], other: Float[Array, "... features"]
) -> Float[Array, "..."]:
    """Return the mean over features of the squared difference."""
    return jnp.mean(jnp.square(one - other), -1)

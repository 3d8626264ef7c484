"""Values of actions that are several choices, as the mean over the choices (Seyde 2023,
arXiv:2210.12566, eq. 3):

    Q(s, a) = 1/M sum_j Q_j(s, a_j),     max_a Q(s, a) = 1/M sum_j max_{a_j} Q_j(s, a_j)

A network returns the Q_j side by side, ``sum(sizes)`` numbers for choices among ``sizes``. One
choice is the usual Q. Actions are ``(..., M)``, or ``(...)`` for one choice without an axis.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped

from sterling.equations.value_losses import dueling, q_of_action


def split_choices(
    x: Shaped[Array, "... outputs"], sizes: tuple[int, ...]
) -> list[Shaped[Array, "... _"]]:
    """Return what ``x`` says of each choice."""
    return jnp.split(x, list(accumulate(sizes))[:-1], -1) if len(sizes) > 1 else [x]


def mean_over_choices(
    x: Float[Array, "... outputs"],
    sizes: tuple[int, ...],
    reduce: Callable[[Float[Array, "... _"]], Float[Array, "..."]],
) -> Float[Array, "..."]:
    """Return the mean over choices of ``reduce`` of each."""
    parts = [reduce(part) for part in split_choices(x, sizes)]
    return parts[0] if len(parts) == 1 else jnp.mean(jnp.stack(parts), 0)


def q_of_choices(
    q: Float[Array, "... outputs"], action: Int[Array, "..."], sizes: tuple[int, ...]
) -> Float[Array, "..."]:
    """Return Q(s, a) of the given actions."""
    if action.ndim < q.ndim:
        return q_of_action(q, action)
    picked = [q_of_action(part, action[..., at]) for at, part in enumerate(split_choices(q, sizes))]
    return picked[0] if len(picked) == 1 else jnp.mean(jnp.stack(picked), 0)


def max_q(q: Float[Array, "... outputs"], sizes: tuple[int, ...]) -> Float[Array, "..."]:
    """Return max_a Q(s, a)."""
    return mean_over_choices(q, sizes, lambda part: part.max(-1))


def dueling_choices(
    value: Float[Array, "... 1"], advantage: Float[Array, "... outputs"], sizes: tuple[int, ...]
) -> Float[Array, "... outputs"]:
    """Return Q_j = V + A_j - mean A_j of every choice (Wang 2016, eq. 9)."""
    parts = [dueling(value, part) for part in split_choices(advantage, sizes)]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts, -1)

"""Advantages of answers whose reward is a sum, each term normalised by itself (GDPO).

With terms r_k, weights w_k and the group-relative advantage A of equations/group_advantages.py,

    S_i = sum_k w_k A(r_k)_i,      A_i = (S_i - mean S) / (std S + eps)

over all valid rows of the batch, with the unbiased deviation (Liu 2026, arXiv:2601.05242, eqs. 4 to
7). A term whose values vary little counts as much as one whose values vary a lot: only its weight
says how much. In the paper every term applies to every answer; here a row with weight 0 for a term
enters no mean and no deviation of it.
"""

from __future__ import annotations

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from sterling.equations import group_advantages

EPS = 1e-4  # as in group_advantages.advantages


def term_advantages(
    terms: Float[Array, "row term"],
    weights: Float[Array, "row term"],
    group: Int[Array, "row"],
    valid: Bool[Array, "row"],
    how: tuple[str, str],
) -> Float[Array, "row"]:
    """Return A of the module docstring, without gradient; 0 where not ``valid``. ``how`` is the
    baseline and scale of each term (GDPO: mean and group)."""
    total = jnp.zeros_like(terms[:, 0])
    for term, weight in zip(terms.T, weights.T, strict=True):
        applies = valid & (weight != 0.0)
        total = total + weight * group_advantages.advantages(term, group, applies, *how)
    return group_advantages.whiten(total, valid, EPS)

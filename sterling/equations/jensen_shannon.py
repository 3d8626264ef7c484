"""The generalised Jensen-Shannon divergence between a teacher's and a student's distributions.

With T the teacher's probabilities, S the student's and M = beta T + (1 - beta) S (Agarwal 2024,
arXiv:2306.13649, eq. 1)

    D = beta KL(T || M) + (1 - beta) KL(S || M)

At the ends of beta this is 0. D is there the limit of D / beta, which is KL(T || S) (forward: the
student covers all that the teacher does), or of D / (1 - beta), which is KL(S || T) (reverse: it
keeps to what the teacher does most). The teacher is a constant: no gradient reaches it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def jensen_shannon(
    teacher: Float[Array, "... choice"],
    student: Float[Array, "... choice"],
    beta: Float[Array, ""] | float,
) -> Float[Array, "..."]:
    """Return D, in nats, of log-probabilities over all choices; they must be finite."""
    teacher = jax.lax.stop_gradient(teacher)
    inside = jnp.where((beta > 0.0) & (beta < 1.0), beta, 0.5)  # elsewhere D is not used
    mixed = jnp.logaddexp(teacher + jnp.log(inside), student + jnp.log1p(-inside))
    between = inside * _kl(teacher, mixed) + (1.0 - inside) * _kl(student, mixed)
    ends = jnp.where(beta <= 0.0, _kl(teacher, student), _kl(student, teacher))
    return jnp.where((beta > 0.0) & (beta < 1.0), between, ends)


def _kl(one: Float[Array, "... choice"], other: Float[Array, "... choice"]) -> Float[Array, "..."]:
    """Return KL(one || other)."""
    return jnp.sum(jnp.exp(one) * (one - other), -1)

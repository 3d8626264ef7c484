"""A critic of tokens: what the rest of an answer will earn, read off a language model's body."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from sterling.algorithms.language import teaching
from sterling.equations.aggregate import weighted_sum, weights
from sterling.language.model import LanguageModel
from sterling.language.packing import Lines

CLIP = 0.2  # how far a value moves in an iteration's updates (PPO's value clipping)


class Judge(eqx.Module):
    """What is learned: a body of its own, and a line through what it says."""

    body: LanguageModel
    head: Float[Array, "width"]

    def __call__(self, lines: Lines) -> Float[Array, "row token"]:
        """The value before each token but the first is chosen."""
        return lines.by_line(jnp.dot(lines.hidden(self.body), self.head))[:, :-1]


class Critic(eqx.Module):
    """A judge that learns."""

    judge: Judge
    optimiser: optax.OptState

    @classmethod
    def create(cls, model: LanguageModel) -> Critic:
        """One that begins with the model's body, and values everything at 0."""
        judge = Judge(model, jnp.zeros(model.embedding.shape[1]))
        return cls(judge, teaching.optimiser(judge))

    def learned(
        self,
        rows: dict[str, Array],
        *,
        lr: Float[Array, ""] | float,
        max_norm: Float[Array, ""] | float,
        piece: int,
    ) -> tuple[Critic, dict[str, Array]]:
        """One update on a minibatch towards its "target", (v - target)^2 / 2 or its clipped form
        where larger. "value" is what the critic said as the iteration began; "ids" and "counted"
        are the tokens, and which of them are the policy's own."""
        mask = rows["counted"]
        share = weights(mask, jnp.zeros(mask.shape[0], jnp.int32), "token")
        judge, optimiser, found = teaching.update(
            *(self.judge, self.optimiser, loss, (rows["ids"], mask)),
            (rows["target"], rows["value"], share),
            lr=lr,
            max_norm=max_norm,
            piece=piece,
        )
        return Critic(judge, optimiser), {"loss/value": found["loss/value"]}


def loss(judge: Judge, lines: Lines, rows: Any) -> tuple[Float[Array, ""], dict[str, Array]]:
    """max((v - target)^2, (clip(v, before +- CLIP) - target)^2) / 2."""
    target, before, share = rows
    value = judge(lines)
    near = before + jnp.clip(value - before, -CLIP, CLIP)
    worse = jnp.maximum(jnp.square(value - target), jnp.square(near - target))
    total = 0.5 * weighted_sum(worse, share)
    return total, {"loss/value": total}

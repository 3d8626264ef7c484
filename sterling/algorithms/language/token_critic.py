"""The critic of policy_gradient.py: the expected return from each token on, by a language model."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from sterling.algorithms.language import gradient_accumulation
from sterling.equations.token_averages import token_weights, weighted_sum
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.sequence_packing import TokenRows

VALUE_CLIP = 0.2  # largest change of a value per iteration (PPO's value clipping)


class ValueModel(eqx.Module):
    """The critic's network: a language model's body, and a linear head on its hidden states."""

    body: LanguageModel
    head: Float[Array, "width"]

    def __call__(self, lines: TokenRows) -> Float[Array, "row token"]:
        """Return the value before each token is chosen, for all tokens but the first."""
        return lines.by_line(jnp.dot(lines.hidden(self.body), self.head))[:, :-1]


class Critic(eqx.Module):
    """The value model with its optimiser."""

    judge: ValueModel
    optimiser: optax.OptState

    @classmethod
    def create(cls, model: LanguageModel) -> Critic:
        """Create a critic with the model's body and a head of 0, so that all values are 0."""
        judge = ValueModel(model, jnp.zeros(model.embedding.shape[1]))
        return cls(judge, gradient_accumulation.new_optimiser(judge))

    def update(
        self,
        rows: dict[str, Array],
        *,
        lr: Float[Array, ""] | float,
        max_norm: Float[Array, ""] | float,
        piece: int,
    ) -> tuple[Critic, dict[str, Array]]:
        """Make one update towards a minibatch's "target", by (v - target)^2 / 2 or its clipped form
        where larger. "value" is the critic's output at the start of the iteration, "ids" the tokens
        and "counted" which of them are the policy's own."""
        mask = rows["counted"]
        share = token_weights(mask, jnp.zeros(mask.shape[0], jnp.int32), "token")
        judge, optimiser, metrics = gradient_accumulation.update(
            *(self.judge, self.optimiser, loss, (rows["ids"], mask)),
            (rows["target"], rows["value"], share),
            lr=lr,
            max_norm=max_norm,
            piece=piece,
        )
        return Critic(judge, optimiser), {"loss/value": metrics["loss/value"]}


def loss(
    judge: ValueModel, lines: TokenRows, rows: Any
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Return max((v - target)^2, (clip(v, before +- VALUE_CLIP) - target)^2) / 2, weighted."""
    target, before, share = rows
    value = judge(lines)
    clipped = before + jnp.clip(value - before, -VALUE_CLIP, VALUE_CLIP)
    error = jnp.maximum(jnp.square(value - target), jnp.square(clipped - target))
    total = 0.5 * weighted_sum(error, share)
    return total, {"loss/value": total}

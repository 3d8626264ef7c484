"""How every learner of language models makes an update: gradients summed over pieces of a batch.

A loss is a weighted sum over rows whose weights were made for the whole batch, so in how many
pieces the rows are read changes memory and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from sterling.language import lora
from sterling.language.model import LanguageModel
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.types import Mistake, Record, Spec

M = TypeVar("M")
T = TypeVar("T")
Loss = Callable[[Any, Any], tuple[Float[Array, ""], dict[str, Float[Array, ""]]]]


def tokens(batch: Record) -> Int[Array, "row time"]:
    """The lines' tokens, from what precedes and what follows each."""
    first: Array = batch.obs
    return jnp.concatenate([first[:, :1], batch.action], 1)


def said(batch: Record) -> Bool[Array, "row token"]:
    """Where there is a token to learn from: the model's own, in rows that count."""
    return batch.mask & batch.extras["valid"][:, None]


def optimiser(model: Any) -> optax.OptState:
    """Adam's state for what :func:`update` will change: adapters alone where a model has some."""
    return adam().init(lora.split(model)[0])


def update(
    model: M,
    optimiser: optax.OptState,
    loss: Loss,
    rows: PyTree,
    *,
    lr: Float[Array, ""] | float,
    max_norm: Float[Array, ""] | float,
    decay: Float[Array, ""] | float = 0.0,
    piece: int = 0,
) -> tuple[M, optax.OptState, dict[str, Float[Array, ""]]]:
    """One step of AdamW down the gradient of ``loss(model, rows)``, a sum over rows and what to
    report of it (sums as well). At most ``piece`` rows are read at a time; 0: all at once. A model
    with LoRA adapters changes in them alone."""
    learned, fixed = lora.split(model)

    def of_learned(learned: M, rows: PyTree) -> Any:
        return loss(lora.join(learned, fixed), rows)

    grads, found = gradient(learned, of_learned, rows, piece)
    direction, optimiser = adam(max_norm=max_norm).update(grads, optimiser)
    direction = jax.tree.map(lambda d, p: d + decay * p, direction, learned)
    model = lora.join(descend(learned, direction, lr), fixed)
    return model, optimiser, found | {"loss/grad_norm": global_norm(grads)}


def gradient(model: M, loss: Loss, rows: PyTree, piece: int) -> tuple[M, dict[str, Any]]:
    """The gradient and what is reported, summed over equal pieces of at most ``piece`` rows."""
    derive = jax.grad(loss, has_aux=True)
    parts = _parts(rows, piece)
    if parts is None:
        return derive(model, rows)
    shapes = jax.eval_shape(derive, model, jax.tree.map(lambda x: x[0], parts))
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def add(total: Any, part: Any) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, derive(model, part)), None

    return jax.lax.scan(add, nothing, parts)[0]


def in_pieces(read: Callable[[Any], T], rows: PyTree, piece: int) -> T:
    """``read(rows)``, whose leaves have an axis of rows first, from equal pieces of at most
    ``piece`` rows that are read one after another, as :func:`gradient` reads them."""
    parts = _parts(rows, piece)
    if parts is None:
        return read(rows)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), jax.lax.map(read, parts))


def log_prob(
    model: LanguageModel,
    ids: Int[Array, "row time"],
    temperature: Float[Array, ""] | float,
    piece: int,
) -> Float[Array, "row token"]:
    """What a model gives to all tokens but the first, as numbers that no gradient goes through."""

    def read(ids: Int[Array, "row time"]) -> Float[Array, "row token"]:
        return model.log_prob(ids, temperature)[0]

    return jax.lax.stop_gradient(in_pieces(read, ids, piece))


def _parts(rows: PyTree, piece: int) -> PyTree | None:
    """Rows as ``(part, row, ...)``, in the fewest equal parts of at most ``piece`` rows; None where
    that is one part."""
    count = jax.tree.leaves(rows)[0].shape[0]
    if piece <= 0 or piece >= count:
        return None
    size = next(size for size in range(piece, 0, -1) if count % size == 0)
    return jax.tree.map(lambda x: x.reshape(count // size, size, *x.shape[1:]), rows)


def model_of(key: Array, spec: Spec, name: str) -> Any:
    """A new model to be taught; Mistake where the problem is not one of language."""
    if spec.model is None:
        raise Mistake(f"{name} teaches language models; name a world of text, as reverse-text")
    return spec.model(key)

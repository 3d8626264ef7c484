"""How every learner of language models makes an update: gradients summed over pieces of a batch.

A loss is a weighted sum over rows whose weights were made for the whole batch, so in how many
pieces the rows are read, and which lie together, changes memory and time and nothing else.
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
from sterling.language.packing import Lines, Packs
from sterling.nets.optimiser import adam, descend, global_norm
from sterling.types import Mistake, Record, Spec

M = TypeVar("M")
Texts = tuple[Int[Array, "line time"], Bool[Array, "line token"]]
Loss = Callable[[Any, Lines, Any], tuple[Float[Array, ""], dict[str, Float[Array, ""]]]]


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
    texts: Texts,
    rows: PyTree,
    *,
    lr: Float[Array, ""] | float,
    max_norm: Float[Array, ""] | float,
    decay: Float[Array, ""] | float = 0.0,
    piece: int = 0,
) -> tuple[M, optax.OptState, dict[str, Float[Array, ""]]]:
    """One step of AdamW down the gradient of ``loss(model, lines, rows)``, a sum over rows and what
    to report of it (sums as well). As many tokens as ``piece`` full rows have are read at a time;
    0: all rows at once, as they are. A model with LoRA adapters changes in them alone."""
    learned, fixed = lora.split(model)

    def of_learned(learned: M, lines: Lines, rows: PyTree) -> Any:
        return loss(lora.join(learned, fixed), lines, rows)

    grads, found = gradient(learned, of_learned, texts, rows, piece)
    direction, optimiser = adam(max_norm=max_norm).update(grads, optimiser)
    direction = jax.tree.map(lambda d, p: d + decay * p, direction, learned)
    model = lora.join(descend(learned, direction, lr), fixed)
    return model, optimiser, found | {"loss/grad_norm": global_norm(grads)}


def gradient(
    model: M, loss: Loss, texts: Texts, rows: PyTree, piece: int
) -> tuple[M, dict[str, Any]]:
    """The gradient and what is reported, summed over pieces of at most ``piece`` full rows' length.

    ``texts`` are the tokens of all lines and where the learned ones are; ``rows`` what else belongs
    to each, or to each two where lines come in pairs.
    """
    derive = jax.grad(loss, has_aux=True)
    packs = _packs(texts, rows, piece)
    if packs is None:
        return derive(model, Lines.whole(texts[0]), rows)

    def of_piece(number: Int[Array, ""]) -> Any:
        return derive(model, packs.read(number), packs.units(rows, number))

    shapes = jax.eval_shape(of_piece, packs.pieces)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def add(number: Int[Array, ""], total: Any) -> Any:
        return jax.tree.map(jnp.add, total, of_piece(number))

    return jax.lax.fori_loop(0, packs.pieces, add, nothing)


def in_pieces(
    read: Callable[[Lines, Any], Float[Array, "unit ..."]],
    texts: Texts,
    piece: int,
    rows: PyTree = None,
) -> Float[Array, "unit ..."]:
    """``read(lines, rows)``, a number or more of each row, from pieces that are read one after
    another, as :func:`gradient` reads them; no gradient goes through."""
    rows = jnp.zeros(texts[0].shape[0]) if rows is None else rows
    packs = _packs(texts, rows, piece)
    if packs is None:
        return jax.lax.stop_gradient(read(Lines.whole(texts[0]), rows))

    def of_piece(number: Int[Array, ""]) -> Array:
        return read(packs.read(number), packs.units(rows, number))

    shape = jax.eval_shape(of_piece, packs.pieces)
    count = jax.tree.leaves(rows)[0].shape[0]
    nothing = jnp.zeros((count, *shape.shape[1:]), shape.dtype)

    def put(number: Int[Array, ""], found: Array) -> Array:
        return found.at[packs.which(number)].set(of_piece(number), mode="drop")

    return jax.lax.stop_gradient(jax.lax.fori_loop(0, packs.pieces, put, nothing))


def log_prob(
    model: LanguageModel, texts: Texts, temperature: Float[Array, ""] | float, piece: int
) -> Float[Array, "row token"]:
    """What a model gives to all tokens but the first, as numbers that no gradient goes through."""
    return in_pieces(lambda lines, _: lines.log_prob(model, temperature)[0], texts, piece)


def _packs(texts: Texts, rows: PyTree, piece: int) -> Packs | None:
    """The lines in pieces; None where they are read as they are, as few rows take no longer so."""
    units = jax.tree.leaves(rows)[0].shape[0]
    return Packs.of(*texts, piece, texts[0].shape[0] // units) if 0 < piece < units else None


def model_of(key: Array, spec: Spec, name: str) -> Any:
    """A new model to be taught; Mistake where the problem is not one of language."""
    if spec.model is None:
        raise Mistake(f"{name} teaches language models; name a world of text, as reverse-text")
    return spec.model(key)

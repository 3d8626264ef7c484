"""The update that all learners of language models share: gradients summed over pieces of a batch.

A loss is a weighted sum over rows, with weights computed for the whole batch. So the number of
pieces, and which rows are packed together, change memory and time but not the result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, PyTree

from sterling.language.models import lora
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.sequence_packing import PackedBatch, TokenRows
from sterling.nets.optimiser import adam, descend, global_norm, warmup_lr
from sterling.types import Mistake, Record, Spec

M = TypeVar("M")
Texts = tuple[Int[Array, "line time"], Bool[Array, "line token"]]
Loss = Callable[[Any, TokenRows, Any], tuple[Float[Array, ""], dict[str, Float[Array, ""]]]]


def batch_tokens(batch: Record) -> Int[Array, "row time"]:
    """Return the texts' tokens: the first token of ``obs``, then all actions."""
    first: Array = batch.obs
    return jnp.concatenate([first[:, :1], batch.action], 1)


def answer_mask(batch: Record) -> Bool[Array, "row token"]:
    """Return the mask of tokens to learn from: those of answers, in valid rows."""
    return batch.mask & batch.extras["valid"][:, None]


def new_optimiser(model: Any) -> optax.OptState:
    """Create Adam's state for the parameters that :func:`update` changes: only the LoRA adapters if
    the model has some."""
    return adam().init(lora.split_trainable(model)[0])


def update_options(config: Any, updates: Int[Array, ""]) -> dict[str, Any]:
    """Return the options of :func:`update` that the Configs of language learners share."""
    return {
        "lr": warmup_lr(config.lr, updates, config.rise),
        "max_norm": config.max_grad_norm,
        "decay": config.weight_decay,
        "piece": config.piece,
    }


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
    """Make one AdamW step on ``loss(model, lines, rows)``, which returns a sum over rows, and
    metrics (also sums). A piece holds as many tokens as ``piece`` full rows; 0: all rows at once,
    unpacked. If the model has LoRA adapters, only they change."""
    learned, fixed = lora.split_trainable(model)

    def of_learned(learned: M, lines: TokenRows, rows: PyTree) -> Any:
        return loss(lora.join_trainable(learned, fixed), lines, rows)

    grads, found = summed_gradient(learned, of_learned, texts, rows, piece)
    direction, optimiser = adam(max_norm=max_norm).update(grads, optimiser)
    direction = jax.tree.map(lambda d, p: d + decay * p, direction, learned)
    model = lora.join_trainable(descend(learned, direction, lr), fixed)
    return model, optimiser, found | {"loss/grad_norm": global_norm(grads)}


def summed_gradient(
    model: M, loss: Loss, texts: Texts, rows: PyTree, piece: int
) -> tuple[M, dict[str, Any]]:
    """Return gradient and metrics, summed over pieces with the tokens of ``piece`` full rows.

    ``texts`` are the tokens of all rows and the mask of learned ones; ``rows`` holds the other
    inputs of each row, or of each pair of rows.
    """
    derive = jax.grad(loss, has_aux=True)
    found: tuple[M, dict[str, Any]] = _summed(partial(derive, model), texts, rows, piece)
    return found


def summed_metrics(
    model: M, loss: Loss, texts: Texts, rows: PyTree, piece: int
) -> dict[str, Float[Array, ""]]:
    """Return the metrics of :func:`summed_gradient` alone: nothing is derived or learned."""
    found: dict[str, Array] = _summed(lambda *part: loss(model, *part)[1], texts, rows, piece)
    return found


def _summed(
    read: Callable[[TokenRows, Any], Any], texts: Texts, rows: PyTree, piece: int
) -> PyTree:
    """Return the sum of ``read(lines, rows)`` over pieces with the tokens of ``piece`` full
    rows."""
    packs = _pack_lines(texts, rows, piece)
    if packs is None:
        return read(TokenRows.one_per_row(texts[0]), rows)

    def of_piece(number: Int[Array, ""]) -> Any:
        return read(packs.read(number), packs.units(rows, number))

    shapes = jax.eval_shape(of_piece, packs.pieces)
    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)

    def add(number: Int[Array, ""], total: Any) -> Any:
        return jax.tree.map(jnp.add, total, of_piece(number))

    return jax.lax.fori_loop(0, packs.pieces, add, nothing)


def map_pieces(
    read: Callable[[TokenRows, Any], Float[Array, "unit ..."]],
    texts: Texts,
    piece: int,
    rows: PyTree = None,
) -> Float[Array, "unit ..."]:
    """Apply ``read(lines, rows)``, which returns values per row, to one piece after another, in the
    pieces of :func:`summed_gradient`; results have no gradient."""
    rows = jnp.zeros(texts[0].shape[0]) if rows is None else rows
    packs = _pack_lines(texts, rows, piece)
    if packs is None:
        return jax.lax.stop_gradient(read(TokenRows.one_per_row(texts[0]), rows))

    def of_piece(number: Int[Array, ""]) -> Array:
        return read(packs.read(number), packs.units(rows, number))

    shape = jax.eval_shape(of_piece, packs.pieces)
    count = jax.tree.leaves(rows)[0].shape[0]
    nothing = jnp.zeros((count, *shape.shape[1:]), shape.dtype)

    def put(number: Int[Array, ""], found: Array) -> Array:
        return found.at[packs.which(number)].set(of_piece(number), mode="drop")

    return jax.lax.stop_gradient(jax.lax.fori_loop(0, packs.pieces, put, nothing))


def token_log_probs(
    model: LanguageModel, texts: Texts, temperature: Float[Array, ""] | float, piece: int
) -> Float[Array, "row token"]:
    """Return the log-probabilities of all tokens but the first, without gradient."""
    return map_pieces(lambda lines, _: lines.log_prob(model, temperature)[0], texts, piece)


def _pack_lines(texts: Texts, rows: PyTree, piece: int) -> PackedBatch | None:
    """Pack the rows into pieces; None if all rows are processed at once, unpacked."""
    units = jax.tree.leaves(rows)[0].shape[0]
    return (
        PackedBatch.from_lines(*texts, piece, texts[0].shape[0] // units)
        if 0 < piece < units
        else None
    )


def new_model(key: Array, spec: Spec, name: str) -> Any:
    """Create an untrained language model. Raises Mistake if the environment is not a text world."""
    if spec.model is None:
        raise Mistake(f"{name} trains language models. Name a text world, such as reverse-text.")
    return spec.model(key)

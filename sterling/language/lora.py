"""LoRA (Hu 2022, arXiv:2106.09685): learn a small change of a large model.

A projection W x becomes W x + (alpha / rank) B A x. Only A (rank, inputs) and B (outputs, rank)
are learned; B is 0 at first, so the model begins as it was. :func:`add` puts them into a model,
which is used as before. :func:`split` tells what is learned from what is not:

>>> model = lora.add(model, rank=16)
>>> learned, fixed = lora.split(model)
>>> gradient = jax.grad(lambda learned: loss(lora.join(learned, fixed)))(learned)

``sterling.language.peft`` exchanges A and B with Hugging Face's PEFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import keys
from sterling.language import families
from sterling.language.model import LanguageModel
from sterling.naming import hint
from sterling.nets.mlp import Linear
from sterling.types import Mistake

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
M = TypeVar("M")  # a model, or a tree with models in it
FIELDS = ("queries", "out", "up", "down")


class Adapter(eqx.Module):
    """What is learned of one projection; in a stack of layers with a leading layer axis."""

    first: Float[Array, "*layer rank inputs"]  # A
    second: Float[Array, "*layer outputs rank"]  # B
    name: str = eqx.field(static=True)  # PEFT's
    start: int = eqx.field(static=True)  # its first column of the matrix that it is a part of

    @property
    def stop(self) -> int:
        """The column after its last."""
        return self.start + self.second.shape[-2]


class Adapted(Linear):
    """A linear map whose columns, or some of them, have adapters. These compute in float32."""

    adapters: tuple[Adapter, ...] = ()  # from left to right
    scale: float = eqx.field(static=True, default=1.0)  # alpha / rank

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """x W + b, and scale x A^T B^T where there is an adapter."""
        y = super().__call__(x)
        parts, end = [], 0
        for each in self.adapters:
            parts.append(jnp.zeros((*y.shape[:-1], each.start - end), y.dtype))
            low = jnp.dot(x.astype(each.first.dtype), each.first.T)
            parts.append((self.scale * jnp.dot(low, each.second.T)).astype(y.dtype))
            end = each.stop
        parts.append(jnp.zeros((*y.shape[:-1], y.shape[-1] - end), y.dtype))
        return y + jnp.concatenate(parts, -1)

    def plain(self) -> Linear:
        """The same map without adapters: W + scale (B A)^T, in W's type."""
        weight = self.weight.astype(jnp.float32)
        for each in self.adapters:
            change = self.scale * jnp.dot(each.second, each.first).T
            weight = weight.at[:, each.start : each.stop].add(change)
        return Linear(weight.astype(self.weight.dtype), self.bias)


def add(
    model: LanguageModel,
    rank: int = 16,
    alpha: float | None = None,
    targets: Sequence[str] = TARGETS,
    *,
    key: Key[Array, ""] | None = None,
) -> LanguageModel:
    """The model with adapters of ``rank`` at the projections ``targets`` of all layers.

    It computes what it did before: A ~ U(-inputs^-1/2, inputs^-1/2), as PEFT has it, and B = 0.
    ``alpha`` (default: 2 ``rank``) over ``rank`` multiplies what they add. Raises
    :class:`Mistake` for targets that are not known, ranks under 1, and a model that has some.
    """
    if rank < 1 or not targets:
        raise Mistake(
            f"LoRA of rank {rank} at {len(targets)} targets learns nothing; use 8 and q_proj"
        )
    for name in targets:
        if name not in TARGETS:
            near = hint(name, TARGETS, f"use some of {', '.join(TARGETS)}")
            raise Mistake(f"LoRA target {name!r} is not known{near}")
    start = jax.random.key(0) if key is None else key
    if adapted(model):
        raise Mistake("the model has LoRA adapters already; merge them first, or go on with them")
    wanted = families.plan_of(model)
    pairs = {}
    for name, each in families.projections(wanted.form, wanted.width).items():
        inputs = getattr(families.blocks(model), each.field).weight.shape[-2]
        size = (wanted.layers, rank, inputs)
        bound = inputs**-0.5
        first = jax.random.uniform(keys.fold(start, name), size, minval=-bound, maxval=bound)
        second = jnp.zeros((wanted.layers, each.stop - each.start, rank))
        pairs[name] = (first, second)
    scale = (2.0 * rank if alpha is None else alpha) / rank
    return put(model, {name: pairs[name] for name in pairs if name in targets}, scale)


def split(tree: M) -> tuple[M, M]:
    """What is learned of a model, or of a tree with models in it, and what LoRA leaves alone: two
    trees, each with None for the other's leaves; :func:`join` makes them one.

    Of a model with adapters they alone are learned; everything else, heads beside it too, is.
    """
    mask = jax.tree.map(_learned, tree, is_leaf=lambda each: isinstance(each, LanguageModel))
    return eqx.partition(tree, mask)


def join(learned: M, fixed: M) -> M:
    """The tree that :func:`split` took apart."""
    return eqx.combine(learned, fixed)


def merged(model: LanguageModel) -> LanguageModel:
    """A model without adapters that computes the same; one that has none is returned as it is."""
    for field, linear in adapted(model).items():
        plain = jax.vmap(Adapted.plain)(linear)
        model = _with(model, field, plain)
    return model


def adapted(model: LanguageModel) -> dict[str, Adapted]:
    """The matrices that have adapters, by their names in a :class:`Block`."""
    blocks = families.blocks(model)
    found = {field: getattr(blocks, field) for field in FIELDS}
    return {field: each for field, each in found.items() if isinstance(each, Adapted)}


def described(model: LanguageModel) -> dict[str, Any] | None:
    """What :func:`add` is asked for to put adapters of a model's form into one; None: it has none.

    Adapters of one rank are expected, as :func:`add` and PEFT make them.
    """
    found = list(adapted(model).values())
    if not found:
        return None
    every = [each for linear in found for each in linear.adapters]
    rank: int = every[0].first.shape[-2]
    targets = [each.name for each in every]
    return {"rank": rank, "alpha": found[0].scale * rank, "targets": targets}


def put(model: LanguageModel, pairs: dict[str, tuple[Array, Array]], scale: float) -> LanguageModel:
    """The model with an A (layer, rank, inputs) and B (layer, outputs, rank) for each projection
    that is named."""
    modules = families.projections(model.stack.form, model.embedding.shape[1])
    for field in FIELDS:
        names = [name for name in modules if modules[name].field == field and name in pairs]
        if not names:
            continue
        made = tuple(Adapter(*pairs[name], name, modules[name].start) for name in names)

        def wrap(linear: Linear, adapters: tuple[Adapter, ...]) -> Adapted:
            return Adapted(linear.weight, linear.bias, adapters, scale)

        new = jax.vmap(wrap)(getattr(families.blocks(model), field), made)
        model = _with(model, field, new)
    return model


def _with(model: LanguageModel, field: str, new: Linear) -> LanguageModel:
    """The model with another matrix in all layers."""
    return eqx.tree_at(lambda tree: getattr(tree.stack.blocks, field), model, new)


def _learned(part: Any) -> Any:
    """For every leaf of a model, or for a leaf outside of one, whether it is learned."""
    if not isinstance(part, LanguageModel) or not adapted(part):
        return jax.tree.map(eqx.is_array, part)
    mask = jax.tree.map(lambda _: False, part)
    return eqx.tree_at(
        lambda model: [linear.adapters for linear in adapted(model).values()],
        mask,
        replace_fn=lambda each: jax.tree.map(lambda _: True, each),
    )

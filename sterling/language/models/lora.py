"""LoRA (Hu 2022, arXiv:2106.09685): train a small change of a large model.

A projection W x becomes W x + (alpha / rank) B A x. Only A (rank, inputs) and B (outputs, rank) are
trained; B is 0 at first, so the model starts unchanged. :func:`add_adapters` puts them into a
model, which is used as before. :func:`split_trainable` separates what is trained from what is not:

>>> model = lora.add_adapters(model, rank=16)
>>> trained, fixed = lora.split_trainable(model)
>>> gradient = jax.grad(lambda trained: loss(lora.join_trainable(trained, fixed)))(trained)

``sterling.language.models.peft_folder`` exchanges A and B with Hugging Face's PEFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from sterling import random_keys
from sterling.language.models import model_families
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.tensor_places import model_projections, projections
from sterling.lookup.name_suggestions import did_you_mean
from sterling.nets.mlp import Linear
from sterling.system.mistake import Mistake

M = TypeVar("M")  # a model, or a tree with models in it
BLOCK_FIELDS = ("queries", "out", "up", "down")


class Adapter(eqx.Module):
    """The two trained matrices of one projection; in a stack of layers, with a leading layer
    axis."""

    first: Float[Array, "*layer rank inputs"]  # A
    second: Float[Array, "*layer outputs rank"]  # B
    name: str = eqx.field(static=True)  # PEFT's name of the projection
    start: int = eqx.field(static=True)  # its first column in our matrix

    @property
    def stop(self) -> int:
        """Return the column after its last."""
        return self.start + self.second.shape[-2]


class AdaptedLinear(Linear):
    """A linear map with adapters on all or some of its columns. Adapters compute in float32."""

    adapters: tuple[Adapter, ...] = ()  # from left to right
    scale: float = eqx.field(static=True, default=1.0)  # alpha / rank

    def __call__(self, x: Float[Array, "... inputs"]) -> Float[Array, "... outputs"]:
        """Return x W + b, plus scale x A^T B^T where there is an adapter."""
        y = super().__call__(x)
        parts, end = [], 0
        for each in self.adapters:
            parts.append(jnp.zeros((*y.shape[:-1], each.start - end), y.dtype))
            low = jnp.dot(x.astype(each.first.dtype), each.first.T)
            parts.append((self.scale * jnp.dot(low, each.second.T)).astype(y.dtype))
            end = each.stop
        parts.append(jnp.zeros((*y.shape[:-1], y.shape[-1] - end), y.dtype))
        return y + jnp.concatenate(parts, -1)

    def merge(self) -> Linear:
        """Return the same map without adapters: W + scale (B A)^T, in W's dtype."""
        weight = self.weight.astype(jnp.float32)
        for each in self.adapters:
            change = self.scale * jnp.dot(each.second, each.first).T
            weight = weight.at[:, each.start : each.stop].add(change)
        return Linear(weight.astype(self.weight.dtype), self.bias)


def add_adapters(
    model: LanguageModel,
    rank: int = 16,
    alpha: float | None = None,
    targets: Sequence[str] | None = None,
    *,
    key: Key[Array, ""] | None = None,
) -> LanguageModel:
    """Return the model with adapters of ``rank`` on the projections ``targets`` of all layers
    (None: on all; Phi-3 has them concatenated, as qkv_proj and gate_up_proj).

    It computes what it did before: A ~ U(-inputs^-1/2, inputs^-1/2), as in PEFT, and B = 0.
    ``alpha`` (default: 2 ``rank``) over ``rank`` scales what they add. Raises :class:`Mistake` for
    unknown targets, for ranks below 1, and for a model that already has adapters.
    """
    plan = model_families.plan_of_model(model)
    modules = projections(plan)
    targets = list(modules) if targets is None else targets
    if rank < 1 or not targets:
        raise Mistake(
            f"LoRA needs a rank of at least 1 and at least one target; got rank {rank} and "
            f"{len(targets)} targets; use rank 8 and o_proj"
        )
    for name in targets:
        if name not in modules:
            near = did_you_mean(name, modules, f"use some of {', '.join(modules)}")
            raise Mistake(f"unknown LoRA target {name!r}{near}")
    start = jax.random.key(0) if key is None else key
    if adapted_linears(model):
        raise Mistake("the model already has LoRA adapters; merge them first, or train these")
    pairs = {}
    for name, each in modules.items():
        inputs = getattr(model_families.stacked_blocks(model), each.field).weight.shape[-2]
        size = (plan.layers, rank, inputs)
        bound = inputs**-0.5
        first = jax.random.uniform(random_keys.fold(start, name), size, minval=-bound, maxval=bound)
        second = jnp.zeros((plan.layers, each.stop - each.start, rank))
        pairs[name] = (first, second)
    scale = (2.0 * rank if alpha is None else alpha) / rank
    return put_adapters(model, {name: pairs[name] for name in pairs if name in targets}, scale)


def split_trainable(tree: M) -> tuple[M, M]:
    """Split a model, or a tree that contains models, into what is trained and what LoRA leaves
    unchanged: two trees, each with None for the other's leaves. :func:`join_trainable` puts them
    together.

    In a model with adapters, only the adapters are trained. All leaves outside such a model are
    trained as well, such as a head next to it.
    """
    mask = jax.tree.map(_trainable_mask, tree, is_leaf=lambda each: isinstance(each, LanguageModel))
    return eqx.partition(tree, mask)


def join_trainable(learned: M, fixed: M) -> M:
    """Return the tree that :func:`split_trainable` took apart."""
    return eqx.combine(learned, fixed)


def merge_adapters(model: LanguageModel) -> LanguageModel:
    """Return a model without adapters that computes the same; one that has none is returned as it
    is."""
    for field, linear in adapted_linears(model).items():
        plain = jax.vmap(AdaptedLinear.merge)(linear)
        model = _replace_linear(model, field, plain)
    return model


def adapted_linears(model: LanguageModel) -> dict[str, AdaptedLinear]:
    """Return the matrices that have adapters, by their field names in a :class:`Block`."""
    blocks = model_families.stacked_blocks(model)
    found = {field: getattr(blocks, field) for field in BLOCK_FIELDS}
    return {field: each for field, each in found.items() if isinstance(each, AdaptedLinear)}


def adapter_settings(model: LanguageModel) -> dict[str, Any] | None:
    """Return the arguments of :func:`add_adapters` that give a model adapters of the same form;
    None if it has no adapters.

    All adapters are expected to have one rank, as :func:`add_adapters` and PEFT make them.
    """
    found = list(adapted_linears(model).values())
    if not found:
        return None
    every = [each for linear in found for each in linear.adapters]
    rank: int = every[0].first.shape[-2]
    targets = [each.name for each in every]
    return {"rank": rank, "alpha": found[0].scale * rank, "targets": targets}


def put_adapters(
    model: LanguageModel, pairs: dict[str, tuple[Array, Array]], scale: float
) -> LanguageModel:
    """Return the model with A (layer, rank, inputs) and B (layer, outputs, rank) on each projection
    named in ``pairs``."""
    modules = model_projections(model)
    for field in BLOCK_FIELDS:
        names = [name for name in modules if modules[name].field == field and name in pairs]
        if not names:
            continue
        made = tuple(Adapter(*pairs[name], name, modules[name].start) for name in names)

        def wrap(linear: Linear, adapters: tuple[Adapter, ...]) -> AdaptedLinear:
            return AdaptedLinear(linear.weight, linear.bias, adapters, scale)

        new = jax.vmap(wrap)(getattr(model_families.stacked_blocks(model), field), made)
        model = _replace_linear(model, field, new)
    return model


def _replace_linear(model: LanguageModel, field: str, new: Linear) -> LanguageModel:
    """Return the model with this matrix replaced in all layers."""
    return eqx.tree_at(lambda tree: getattr(tree.stack.blocks, field), model, new)


def _trainable_mask(part: Any) -> Any:
    """Return whether each leaf of a model, or a leaf outside of one, is trained."""
    if not isinstance(part, LanguageModel) or not adapted_linears(part):
        return jax.tree.map(eqx.is_array, part)
    mask = jax.tree.map(lambda _: False, part)
    return eqx.tree_at(
        lambda model: [linear.adapters for linear in adapted_linears(model).values()],
        mask,
        replace_fn=lambda each: jax.tree.map(lambda _: True, each),
    )

"""Where each tensor of a Hugging Face checkpoint is stored in a :class:`LanguageModel`.

Hugging Face stores a matrix for each projection of each layer, as (outputs, inputs). Here all
layers are one array, projections with the same input are concatenated, and matrices are (inputs,
outputs).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.model_families import ModelPlan, plan_of_model
from sterling.nets.transformer import TransformerForm


class Projection(NamedTuple):
    """One of Hugging Face's matrices of a layer: a range of columns of one of our matrices."""

    module: str  # self_attn or mlp
    field: str  # of a Block
    start: int
    stop: int


class TensorPlace(NamedTuple):
    """Where a tensor of a checkpoint is stored in a :class:`LanguageModel`."""

    name: str
    path: tuple[str, ...]  # attributes that lead to the leaf
    layer: int | None = None  # index into a leaf that holds all layers
    columns: tuple[int | None, int | None] = (None, None)  # start, stop
    transposed: bool = False  # stored as the transpose

    def view(self, leaf: np.ndarray) -> np.ndarray:
        """Return the part of our leaf that holds the tensor, in the tensor's layout: a view."""
        part = leaf if self.layer is None else leaf[self.layer]
        part = part[..., slice(*self.columns)]
        return part.T if self.transposed else part


def model_projections(model: LanguageModel) -> dict[str, Projection]:
    """Return the matrices of a layer by the names of the model's family. Raises :class:`Mistake` if
    no family has its form."""
    return projections(plan_of_model(model))


def projections(plan: ModelPlan) -> dict[str, Projection]:
    """Return Hugging Face's matrices of a layer by name."""
    form, width = plan.form, plan.width
    queries, key_heads = form.heads * form.size, form.key_heads * form.size
    attention, perceptron = "self_attn", "mlp"
    if plan.family == "phi3":  # whose matrices are concatenated as ours
        return {
            "qkv_proj": Projection(attention, "queries", 0, queries + 2 * key_heads),
            "o_proj": Projection(attention, "out", 0, width),
            "gate_up_proj": Projection(perceptron, "up", 0, 2 * form.hidden),
            "down_proj": Projection(perceptron, "down", 0, width),
        }
    return {
        "q_proj": Projection(attention, "queries", 0, queries),
        "k_proj": Projection(attention, "queries", queries, queries + key_heads),
        "v_proj": Projection(attention, "queries", queries + key_heads, queries + 2 * key_heads),
        "o_proj": Projection(attention, "out", 0, width),
        "gate_proj": Projection(perceptron, "up", 0, form.hidden),
        "up_proj": Projection(perceptron, "up", form.hidden, 2 * form.hidden),
        "down_proj": Projection(perceptron, "down", 0, width),
    }


def tensor_places(plan: ModelPlan) -> Iterator[TensorPlace]:
    """Yield all tensors of a checkpoint; tensors in the same leaf follow one another."""
    yield TensorPlace("model.embed_tokens.weight", ("embedding",))
    yield TensorPlace("model.norm.weight", ("stack", "norm", "scale"))
    if not plan.tied:
        yield TensorPlace("lm_head.weight", ("head",), transposed=True)
    for field, name in _norm_names(plan.form):
        for layer in range(plan.layers):
            path = ("stack", "blocks", field, "scale")
            yield TensorPlace(f"model.layers.{layer}.{name}.weight", path, layer)
    for field, part in _matrix_names(plan.form):
        for layer in range(plan.layers):
            for name, each in projections(plan).items():
                if each.field == field:
                    whole = f"model.layers.{layer}.{each.module}.{name}.{part}"
                    path, columns = ("stack", "blocks", field, part), (each.start, each.stop)
                    yield TensorPlace(whole, path, layer, columns, transposed=part == "weight")


def _norm_names(form: TransformerForm) -> list[tuple[str, str]]:
    """Return the norms of a layer by our names and by Hugging Face's."""
    found = [("before", "input_layernorm"), ("between", "post_attention_layernorm")]
    if form.late_norms:
        found = [("before", "post_attention_layernorm"), ("between", "post_feedforward_layernorm")]
    if form.normed_heads or form.normed_wholes:
        found += [("of_queries", "self_attn.q_norm"), ("of_keys", "self_attn.k_norm")]
    return found


def _matrix_names(form: TransformerForm) -> list[tuple[str, str]]:
    """Return the matrices of a layer, then the biases that it has."""
    fields = ("queries", "out", "up", "down")
    biased = zip(fields, (*form.biases, form.biases[-1]), strict=True)
    return [(field, "weight") for field in fields] + [(name, "bias") for name, has in biased if has]

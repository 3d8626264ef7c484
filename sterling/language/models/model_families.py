"""The supported model families: how to read their config.json, and where each tensor is stored.

Llama (Touvron 2023; 3.x with stretched positions), Qwen2 and Qwen2.5 (Qwen team 2024) and Qwen3
(2025) are one transformer with switches, :class:`~sterling.nets.transformer.TransformerForm`.
Hugging Face stores a matrix for each projection of each layer, as (outputs, inputs). Here all
layers are one array, projections with the same input are concatenated, and matrices are (inputs,
outputs).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sterling.language.models import rotary_positions
from sterling.language.models.causal_lm import LanguageModel
from sterling.lookup.name_suggestions import did_you_mean
from sterling.nets.transformer import Block, TransformerForm
from sterling.types import Mistake

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
MAX_POSITIONS = 32_768  # written for new models; rotary positions themselves have no limit
MAX_LAYERS = 10_000  # to look for the tensors of a billion layers would take all memory
CONFIG_REMEDY = "take the config.json that the model came with"


@dataclasses.dataclass(frozen=True)
class ModelPlan:
    """The sizes and switches that determine a model's parameter tree."""

    family: str
    vocabulary: int
    width: int
    layers: int
    tied: bool  # the head is the embedding's transpose
    form: TransformerForm

    @property
    def weights(self) -> int:
        """Return the number of weights in its matrices."""
        form, width = self.form, self.width
        attention = 2 * width * form.size * (form.heads + form.key_heads)
        layer = attention + (3 if form.gated else 2) * width * form.hidden
        return self.layers * layer + (1 if self.tied else 2) * self.vocabulary * width


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


def plan_from_config(config: dict[str, Any], where: str) -> ModelPlan:
    """Return the plan of a config.json that was written by transformers 4 or 5.

    ``where`` names the file in errors. Raises :class:`Mistake` for other architectures, for missing
    fields, and for anything that would make the model compute something else than the file says.
    """
    family = config.get("model_type")
    if not isinstance(family, str) or family not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        near = did_you_mean(str(family), ARCHITECTURES, f"use a model of {known}")
        raise Mistake(f"{where}: architecture {family!r} is not supported{near}")
    width, layers = (
        _read_count(config, name, where) for name in ("hidden_size", "num_hidden_layers")
    )
    heads = _read_count(config, "num_attention_heads", where)
    key_heads = _read_count(config, "num_key_value_heads", where, heads)
    size = _read_count(config, "head_dim", where, 128 if family == "qwen3" else width // heads)
    if heads % key_heads or size % 2:
        shape = f"{heads} heads of {size} numbers with {key_heads} key heads"
        raise Mistake(f"{where}: {shape} do not fit together; {CONFIG_REMEDY}")
    _refuse_unsupported(config, layers, where)
    attention, perceptron = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
    biases = {
        "llama": (attention, attention, perceptron),
        "qwen2": (True, False, False),
        "qwen3": (attention, attention, False),
    }
    form = TransformerForm(
        *(heads, key_heads, size, _read_count(config, "intermediate_size", where)),
        norm="rms",
        epsilon=_read_epsilon(config, where),
        gated=True,
        biases=biases[family],
        normed_heads=family == "qwen3",
        rates=rotary_positions.read_rates(config, size, where),
    )
    vocabulary = _read_count(config, "vocab_size", where)
    return ModelPlan(
        family, vocabulary, width, layers, bool(config.get("tie_word_embeddings")), form
    )


def plan_of_model(model: LanguageModel) -> ModelPlan:
    """Return the plan of a model made here, with the family whose form it has.

    Raises :class:`Mistake` if no family has its form.
    """
    form = dataclasses.replace(model.stack.form, remember=True)
    usual = form.norm == "rms" and form.gated and form.rates and model.stack.places is None
    queries, out, perceptron = form.biases
    if not usual:
        family = ""
    elif form.normed_heads:
        family = "" if perceptron or queries != out else "qwen3"
    elif queries == out:
        family = "llama"
    else:
        family = "qwen2" if queries and not perceptron else ""
    if not family:
        known = ", ".join(ARCHITECTURES)
        raise Mistake(
            f"the model has none of the architectures {known}, so it cannot be saved as a "
            "Hugging Face folder; use tiny"
        )
    width, layers = model.embedding.shape[1], stacked_blocks(model).before.scale.shape[0]
    return ModelPlan(family, model.vocabulary, width, layers, model.head is None, form)


def stacked_blocks(model: LanguageModel) -> Block:
    """Return all layers of a model as one :class:`Block`. Raises :class:`Mistake` if they were
    split into single layers."""
    found = model.stack.blocks
    if isinstance(found, tuple):
        raise Mistake(
            "the model's layers were split for sampling; use the model from before the split"
        )
    return found


def config_of_model(model: LanguageModel) -> dict[str, Any]:
    """Return the config.json of a model, which transformers 4 and 5 open: the one it was loaded
    from, if that still describes it, else a new one of its family."""
    plan = plan_of_model(model)
    found = json.loads(model.origin) if model.origin else {}
    sizes = {"vocab_size": plan.vocabulary, "tie_word_embeddings": plan.tied}
    if not found or plan_from_config(found | sizes, "the model's origin") != plan:
        found = _new_config(plan)
    dtype = str(model.embedding.dtype)
    kinds = {"dtype": dtype, "torch_dtype": dtype}  # transformers 5, transformers 4
    return found | {"architectures": [ARCHITECTURES[found["model_type"]]]} | sizes | kinds


def projections(form: TransformerForm, width: int) -> dict[str, Projection]:
    """Return Hugging Face's matrices of a layer by name."""
    queries, key_heads = form.heads * form.size, form.key_heads * form.size
    attention, perceptron = "self_attn", "mlp"
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
            for name, each in projections(plan.form, plan.width).items():
                if each.field == field:
                    whole = f"model.layers.{layer}.{each.module}.{name}.{part}"
                    path, columns = ("stack", "blocks", field, part), (each.start, each.stop)
                    yield TensorPlace(whole, path, layer, columns, transposed=part == "weight")


def _norm_names(form: TransformerForm) -> list[tuple[str, str]]:
    """Return the norms of a layer by our names and by Hugging Face's."""
    found = [("before", "input_layernorm"), ("between", "post_attention_layernorm")]
    if form.normed_heads:
        found += [("of_queries", "self_attn.q_norm"), ("of_keys", "self_attn.k_norm")]
    return found


def _matrix_names(form: TransformerForm) -> list[tuple[str, str]]:
    """Return the matrices of a layer, then the biases that it has."""
    fields = ("queries", "out", "up", "down")
    biased = zip(fields, (*form.biases, form.biases[-1]), strict=True)
    return [(field, "weight") for field in fields] + [(name, "bias") for name, has in biased if has]


def _read_count(config: dict[str, Any], name: str, where: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    limit = MAX_LAYERS if name == "num_hidden_layers" else 2**31
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= limit:
        detail = "is missing" if value is None else f"is {value!r}, not a count"
        raise Mistake(f"{where}: {name} {detail}; {CONFIG_REMEDY}")
    return value


def _read_epsilon(config: dict[str, Any], where: str) -> float:
    value = config.get("rms_norm_eps")
    value = 1e-6 if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
        raise Mistake(f"{where}: rms_norm_eps is {value!r}, not a small number; {CONFIG_REMEDY}")
    return float(value)


def _refuse_unsupported(config: dict[str, Any], layers: int, where: str) -> None:
    """Raise :class:`Mistake` for features that these models may have and we do not compute."""
    if config.get("quantization_config"):
        raise Mistake(f"{where}: weights are quantised; take the checkpoint in bfloat16 or float32")
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise Mistake(f"{where}: activation {activation!r} is not supported; use a model with silu")
    window = config.get("use_sliding_window") and config.get("sliding_window") is not None
    whole = config.get("max_window_layers")  # the first so many layers have no window
    slides = window and not (isinstance(whole, int) and whole >= layers)
    kinds = config.get("layer_types") or ["sliding_attention" if slides else "full_attention"]
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise Mistake(
            f"{where}: layers with a sliding window are not supported; use full attention"
        )


def _new_config(plan: ModelPlan) -> dict[str, Any]:
    """Return a config.json for a model that was not loaded from one."""
    form, rope = plan.form, rotary_positions.rope_parameters(plan.form)
    theta = rope["rope_theta"]
    scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
    return {
        "model_type": plan.family,
        "hidden_size": plan.width,
        "num_hidden_layers": plan.layers,
        "num_attention_heads": form.heads,
        "num_key_value_heads": form.key_heads,
        "head_dim": form.size,
        "intermediate_size": form.hidden,
        "hidden_act": "silu",
        "rms_norm_eps": form.epsilon,
        "attention_bias": form.biases[1],
        "mlp_bias": form.biases[2],
        "attention_dropout": 0.0,
        "max_position_embeddings": MAX_POSITIONS,
        "rope_parameters": rope,
        "rope_theta": theta,
        "rope_scaling": None if rope["rope_type"] == "default" else scaling,
        "use_sliding_window": False,
        "use_cache": True,
    }

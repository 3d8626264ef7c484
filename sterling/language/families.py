"""The published models that are known: what their config.json says, and where their tensors lie.

Llama (Touvron 2023; 3.x with stretched positions), Qwen2 and Qwen2.5 (Qwen team 2024) and Qwen3
(2025) are one transformer with switches, :class:`~sterling.nets.transformer.Form`. Hugging Face
stores a matrix for each projection of each layer, as (outputs, inputs). Here layers are one array,
projections that read the same input stand side by side, and matrices are (inputs, outputs).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from sterling.language import positions
from sterling.language.model import LanguageModel
from sterling.naming import hint
from sterling.nets.transformer import Block, Form
from sterling.types import Mistake

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
LONGEST = 32_768  # tokens that a server may allow for models of our own; rotary positions set none
DEEPEST = 10_000  # layers; to look for the tensors of a billion takes all memory
WHOLE = "take the config.json that the model came with"


@dataclasses.dataclass(frozen=True)
class Plan:
    """What has to be known to make a model's tree."""

    family: str
    vocabulary: int
    width: int
    layers: int
    tied: bool  # the embedding reads the outputs too
    form: Form

    @property
    def weights(self) -> int:
        """How many numbers its matrices hold."""
        form, width = self.form, self.width
        attention = 2 * width * form.size * (form.heads + form.key_heads)
        layer = attention + (3 if form.gated else 2) * width * form.hidden
        return self.layers * layer + (1 if self.tied else 2) * self.vocabulary * width


class Projection(NamedTuple):
    """One of Hugging Face's matrices in a layer: a range of columns of one of ours."""

    module: str  # self_attn or mlp
    field: str  # of a Block
    start: int
    stop: int


class Place(NamedTuple):
    """Where a tensor of a checkpoint lies in a :class:`LanguageModel`."""

    name: str
    path: tuple[str, ...]  # to the leaf
    layer: int | None = None  # of leaves that have all layers
    columns: tuple[int | None, int | None] = (None, None)  # from, to
    turned: bool = False  # stored as the transpose

    def of(self, leaf: np.ndarray) -> np.ndarray:
        """The part of our leaf that the tensor fills, as it is stored: a view."""
        part = leaf if self.layer is None else leaf[self.layer]
        part = part[..., slice(*self.columns)]
        return part.T if self.turned else part


def plan(config: dict[str, Any], where: str) -> Plan:
    """Read a config.json, of transformers 4 or 5.

    ``where`` names it in errors. Raises :class:`Mistake` for other architectures, for parts that
    are missing, and for whatever would make the model compute something else than it says.
    """
    family = config.get("model_type")
    if not isinstance(family, str) or family not in ARCHITECTURES:
        known = ", ".join(ARCHITECTURES)
        near = hint(str(family), ARCHITECTURES, f"known are {known}")
        raise Mistake(f"{where}: architecture {family!r} is not known{near}")
    width, layers = (_count(config, name, where) for name in ("hidden_size", "num_hidden_layers"))
    heads = _count(config, "num_attention_heads", where)
    few = _count(config, "num_key_value_heads", where, heads)
    size = _count(config, "head_dim", where, 128 if family == "qwen3" else width // heads)
    if heads % few or size % 2:
        shape = f"{heads} heads of {size} numbers with {few} key heads"
        raise Mistake(f"{where}: {shape} do not fit together; {WHOLE}")
    _refuse(config, layers, where)
    attention, perceptron = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
    biases = {
        "llama": (attention, attention, perceptron),
        "qwen2": (True, False, False),
        "qwen3": (attention, attention, False),
    }
    form = Form(
        *(heads, few, size, _count(config, "intermediate_size", where)),
        norm="rms",
        epsilon=_epsilon(config, where),
        gated=True,
        biases=biases[family],
        normed_heads=family == "qwen3",
        rates=positions.rates(config, size, where),
    )
    vocabulary = _count(config, "vocab_size", where)
    return Plan(family, vocabulary, width, layers, bool(config.get("tie_word_embeddings")), form)


def plan_of(model: LanguageModel) -> Plan:
    """The plan that a model of ours was made by, and the family that it belongs to.

    Raises :class:`Mistake` where no family has its form.
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
            f"a model of this form is none of {known}, so no folder can hold it; use tiny"
        )
    width, layers = model.embedding.shape[1], blocks(model).before.scale.shape[0]
    return Plan(family, model.vocabulary, width, layers, model.head is None, form)


def blocks(model: LanguageModel) -> Block:
    """All layers of a model as one. Raises :class:`Mistake` where they were taken apart."""
    found = model.stack.blocks
    if isinstance(found, tuple):
        raise Mistake(
            "the model's layers were taken apart for sampling; use the model it was before"
        )
    return found


def config(model: LanguageModel) -> dict[str, Any]:
    """The config.json of a model, which transformers 4 and 5 open: that which it was read from, if
    there is one and it still holds, else one of its family."""
    wanted = plan_of(model)
    found = json.loads(model.origin) if model.origin else {}
    sizes = {"vocab_size": wanted.vocabulary, "tie_word_embeddings": wanted.tied}
    if not found or plan(found | sizes, "the model's origin") != wanted:
        found = _config(wanted)
    dtype = str(model.embedding.dtype)
    kinds = {"dtype": dtype, "torch_dtype": dtype}  # of transformers 5, of 4
    return found | {"architectures": [ARCHITECTURES[found["model_type"]]]} | sizes | kinds


def projections(form: Form, width: int) -> dict[str, Projection]:
    """Hugging Face's matrices of a layer, by name."""
    queries, few = form.heads * form.size, form.key_heads * form.size
    attention, perceptron = "self_attn", "mlp"
    return {
        "q_proj": Projection(attention, "queries", 0, queries),
        "k_proj": Projection(attention, "queries", queries, queries + few),
        "v_proj": Projection(attention, "queries", queries + few, queries + 2 * few),
        "o_proj": Projection(attention, "out", 0, width),
        "gate_proj": Projection(perceptron, "up", 0, form.hidden),
        "up_proj": Projection(perceptron, "up", form.hidden, 2 * form.hidden),
        "down_proj": Projection(perceptron, "down", 0, width),
    }


def places(wanted: Plan) -> Iterator[Place]:
    """All tensors of a checkpoint; those of one leaf of ours follow one another."""
    yield Place("model.embed_tokens.weight", ("embedding",))
    yield Place("model.norm.weight", ("stack", "norm", "scale"))
    if not wanted.tied:
        yield Place("lm_head.weight", ("head",), turned=True)
    for field, name in _norms(wanted.form):
        for layer in range(wanted.layers):
            path = ("stack", "blocks", field, "scale")
            yield Place(f"model.layers.{layer}.{name}.weight", path, layer)
    for field, part in _parts(wanted.form):
        for layer in range(wanted.layers):
            for name, each in projections(wanted.form, wanted.width).items():
                if each.field == field:
                    whole = f"model.layers.{layer}.{each.module}.{name}.{part}"
                    path, columns = ("stack", "blocks", field, part), (each.start, each.stop)
                    yield Place(whole, path, layer, columns, turned=part == "weight")


def _norms(form: Form) -> list[tuple[str, str]]:
    """Norms of a layer, by our names and Hugging Face's."""
    found = [("before", "input_layernorm"), ("between", "post_attention_layernorm")]
    if form.normed_heads:
        found += [("of_queries", "self_attn.q_norm"), ("of_keys", "self_attn.k_norm")]
    return found


def _parts(form: Form) -> list[tuple[str, str]]:
    """Matrices of a layer, and their biases where they have any."""
    fields = ("queries", "out", "up", "down")
    biased = zip(fields, (*form.biases, form.biases[-1]), strict=True)
    return [(field, "weight") for field in fields] + [(name, "bias") for name, has in biased if has]


def _count(config: dict[str, Any], name: str, where: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    most = DEEPEST if name == "num_hidden_layers" else 2**31
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        said = "is missing" if value is None else f"is {value!r}, not a count"
        raise Mistake(f"{where}: {name} {said}; {WHOLE}")
    return value


def _epsilon(config: dict[str, Any], where: str) -> float:
    value = config.get("rms_norm_eps")
    value = 1e-6 if value is None else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 <= value < 1.0:
        raise Mistake(f"{where}: rms_norm_eps is {value!r}, not a small number; {WHOLE}")
    return float(value)


def _refuse(config: dict[str, Any], layers: int, where: str) -> None:
    """What these models may have and we do not compute."""
    if config.get("quantization_config"):
        raise Mistake(f"{where}: weights are quantised; take the checkpoint in bfloat16 or float32")
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise Mistake(f"{where}: activation {activation!r} is not known; use a model with silu")
    window = config.get("use_sliding_window") and config.get("sliding_window") is not None
    whole = config.get("max_window_layers")  # so many layers, from the first, have no window
    slides = window and not (isinstance(whole, int) and whole >= layers)
    kinds = config.get("layer_types") or ["sliding_attention" if slides else "full_attention"]
    if not isinstance(kinds, list) or any(kind != "full_attention" for kind in kinds):
        raise Mistake(f"{where}: layers with a sliding window are not known; use full attention")


def _config(wanted: Plan) -> dict[str, Any]:
    """A config.json for a model that was not read from one."""
    form, rope = wanted.form, positions.rope(wanted.form)
    theta = rope["rope_theta"]
    scaling = {name: value for name, value in rope.items() if name != "rope_theta"}
    return {
        "model_type": wanted.family,
        "hidden_size": wanted.width,
        "num_hidden_layers": wanted.layers,
        "num_attention_heads": form.heads,
        "num_key_value_heads": form.key_heads,
        "head_dim": form.size,
        "intermediate_size": form.hidden,
        "hidden_act": "silu",
        "rms_norm_eps": form.epsilon,
        "attention_bias": form.biases[1],
        "mlp_bias": form.biases[2],
        "attention_dropout": 0.0,
        "max_position_embeddings": LONGEST,
        "rope_parameters": rope,
        "rope_theta": theta,
        "rope_scaling": None if rope["rope_type"] == "default" else scaling,
        "use_sliding_window": False,
        "use_cache": True,
    }

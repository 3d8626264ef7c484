"""The supported model families: how to read and write their config.json.

Llama (Touvron 2023; 3.x with stretched positions), Qwen2 and Qwen2.5 (Qwen team 2024), Qwen3
(2025), Mistral (Jiang 2023), Phi-3 (Abdin 2024), SmolLM3 (2025) and OLMo 2 (2025) are one
transformer with switches, :class:`~sterling.nets.transformer.TransformerForm`.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from sterling.language.models import rotary_positions
from sterling.language.models.causal_lm import LanguageModel
from sterling.lookup.name_suggestions import did_you_mean
from sterling.nets.transformer import Block, TransformerForm
from sterling.system.mistake import Mistake

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "mistral": "MistralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "olmo2": "Olmo2ForCausalLM",
}
# transformers' values of fields that config.json leaves out
DEFAULTS: dict[str, dict[str, Any]] = {
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096, "max_position_embeddings": 2**17},
    "phi3": {"rms_norm_eps": 1e-5, "max_position_embeddings": 4096},
    "olmo2": {"rms_norm_eps": 1e-5},
    "smollm3": {"num_key_value_heads": 4, "tie_word_embeddings": True, "rope_theta": 2_000_000.0},
}
SWITCHES = (
    "normed_heads",
    "normed_wholes",
    "late_norms",
    "unrotated",
)  # fields of a form that most families leave off
MAX_POSITIONS = 32_768  # written for new models; rotary positions themselves have no limit
ALWAYS_SLIDING = ("mistral", "phi3")  # sliding_window needs no use_sliding_window
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
    config = DEFAULTS.get(family, {}) | config
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
    form = TransformerForm(
        *(heads, key_heads, size, _read_count(config, "intermediate_size", where)),
        norm="rms",
        epsilon=_read_epsilon(config, where),
        gated=True,
        biases=_read_biases(config),
        normed_heads=family == "qwen3",
        normed_wholes=family == "olmo2",
        late_norms=family == "olmo2",
        rates=rotary_positions.read_rates(config, size, where),
        unrotated=rotary_positions.read_unrotated(config, layers, where),
    )
    vocabulary = _read_count(config, "vocab_size", where)
    return ModelPlan(
        family, vocabulary, width, layers, bool(config.get("tie_word_embeddings")), form
    )


def plan_of_model(model: LanguageModel) -> ModelPlan:
    """Return the plan of a model made here: of the family that it was loaded from, if its form is
    still one of that family's, else of the first family that has its form.

    Raises :class:`Mistake` if no family has its form.
    """
    form = dataclasses.replace(model.stack.form, remember=True)
    usual = form.norm == "rms" and form.gated and form.rates and model.stack.places is None
    found = families_of_form(form) if usual else []
    if not found:
        known = ", ".join(ARCHITECTURES)
        raise Mistake(
            f"the model has none of the architectures {known}, so it cannot be saved as a "
            "Hugging Face folder; use tiny"
        )
    origin = json.loads(model.origin or "{}").get("model_type")
    family = origin if origin in found else found[0]
    width, layers = model.embedding.shape[1], stacked_blocks(model).before.scale.shape[0]
    return ModelPlan(family, model.vocabulary, width, layers, model.head is None, form)


def families_of_form(form: TransformerForm) -> list[str]:
    """Return the families that have a form with RMS norm, gates and rotary positions."""
    alike = form.biases[0] == form.biases[1]  # queries and output
    switches = {name for name in SWITCHES if getattr(form, name)}
    switches |= {"partly rotary"} if 2 * len(form.rates) < form.size else set()
    fitting = {
        "llama": alike and not switches,
        "qwen2": form.biases == (True, False, False) and not switches,
        "qwen3": alike and not form.biases[2] and switches == {"normed_heads"},
        "mistral": not any(form.biases) and not switches,
        "phi3": not any(form.biases) and switches <= {"partly rotary"},
        "smollm3": alike and switches <= {"unrotated"},
        "olmo2": alike and not form.biases[2] and switches == {"normed_wholes", "late_norms"},
    }
    return [family for family, fits in fitting.items() if fits]


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


def _read_biases(config: dict[str, Any]) -> tuple[bool, bool, bool]:
    """Return whether queries, output and MLP have biases."""
    attention, perceptron = bool(config.get("attention_bias")), bool(config.get("mlp_bias"))
    return {
        "llama": (attention, attention, perceptron),
        "qwen2": (True, False, False),
        "qwen3": (attention, attention, False),
        "mistral": (False, False, False),
        "phi3": (False, False, False),
        "smollm3": (attention, attention, perceptron),
        "olmo2": (attention, attention, False),
    }[config["model_type"]]


def _refuse_unsupported(config: dict[str, Any], layers: int, where: str) -> None:
    """Raise :class:`Mistake` for features that these models may have and we do not compute."""
    if config.get("quantization_config"):
        raise Mistake(f"{where}: weights are quantised; take the checkpoint in bfloat16 or float32")
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise Mistake(f"{where}: activation {activation!r} is not supported; use a model with silu")
    _refuse_windows(config, layers, where)


def _refuse_windows(config: dict[str, Any], layers: int, where: str) -> None:
    """Raise :class:`Mistake` if a layer attends to fewer tokens than the model's context has."""
    window, slides = config.get("sliding_window"), False
    if config["model_type"] in ALWAYS_SLIDING and window is not None:
        window = _read_count(config, "sliding_window", where)
        context = _read_count(config, "max_position_embeddings", where)
        if window < context:
            raise Mistake(
                f"{where}: sliding_window {window} is shorter than max_position_embeddings "
                f"{context}, and layers with a sliding window are not supported; use full "
                f"attention, or set max_position_embeddings to {window} for contexts up to that"
            )
    elif config.get("use_sliding_window") and window is not None:
        whole = config.get("max_window_layers")  # the first so many layers have no window
        qwen = config["model_type"] != "smollm3"  # which has windows in other layers
        slides = not (qwen and isinstance(whole, int) and whole >= layers)
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
    own = {
        "phi3": {"partial_rotary_factor": rope.get("partial_rotary_factor", 1.0)},
        "smollm3": {"no_rope_layers": [int(i not in form.unrotated) for i in range(plan.layers)]},
    }
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
        "sliding_window": None,
        "use_cache": True,
        **own.get(plan.family, {}),
    }

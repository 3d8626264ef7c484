"""Read and write LoRA adapters in the format of Hugging Face's PEFT: adapter_config.json and
adapter_model.safetensors.

Any server that loads PEFT's adapters on top of their base model can load the files written here.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from safetensors.numpy import save_file

from sterling.language.models import lora, model_families
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.model_folder import replace_folder
from sterling.language.models.model_weights import StoredTensors, open_safetensors
from sterling.language.models.tensor_places import Projection, model_projections
from sterling.language.tokenizer import read_json
from sterling.system.mistake import Mistake

TENSOR_NAME = re.compile(
    r"base_model\.model\.model\.layers\.(\d+)\.(self_attn|mlp)\.(\w+)\.lora_([AB])\.weight"
)
IGNORED_OPTIONS = {  # PEFT's options that do not change what a trained adapter computes
    *("peft_type", "task_type", "auto_mapping", "peft_version", "inference_mode", "runtime_config"),
    *("base_model_name_or_path", "revision", "megatron_core", "qalora_group_size"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    *("r", "lora_alpha", "use_rslora", "lora_dropout"),  # read elsewhere, or not needed
    *("eva_config", "corda_config", "loftq_config", "lora_ga_config"),  # initialisation
}
# Initialisations that leave the base model's weights as they are (peft 0.21, layer.py). Others, as
# "pissa" and "olora", change these weights each time that the adapter is loaded.
KNOWN_INITIALISATIONS = (True, False, None, "gaussian", "orthogonal", "eva")


def write_adapters(
    path: str | os.PathLike[str], model: LanguageModel, base: str = "", *, overwrite: bool = False
) -> Path:
    """Write the adapters alone in PEFT's format: adapter_config.json and adapter_model.safetensors.

    ``base`` is the name or folder of their base model. Raises :class:`Mistake` for a model without
    adapters, and if the folder already holds files, unless ``overwrite``.
    """
    found = lora.adapted_linears(model)
    if not found:
        raise Mistake(
            "the model has no LoRA adapters to write; save it as a folder, or add adapters first"
        )
    every = [each for linear in found.values() for each in linear.adapters]
    rank, scale = every[0].first.shape[-2], next(iter(found.values())).scale
    modules = model_projections(model)
    tensors = {}
    for each in every:
        for letter, leaf in (("A", each.first), ("B", each.second)):
            for layer, matrix in enumerate(np.asarray(leaf)):
                module = f"layers.{layer}.{modules[each.name].module}.{each.name}"
                tensors[f"base_model.model.model.{module}.lora_{letter}.weight"] = matrix
    config: dict[str, Any] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": scale * rank,
        "target_modules": [each.name for each in every],
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }
    with replace_folder(Path(path), overwrite) as partial:
        text = json.dumps(config, indent=2)
        (partial / "adapter_config.json").write_text(text + "\n", "utf-8")
        save_file(tensors, partial / "adapter_model.safetensors", {"format": "pt"})
    return Path(path)


def read_adapters(path: str | os.PathLike[str], model: LanguageModel) -> LanguageModel:
    """Return the model with the adapters of a PEFT folder.

    Raises :class:`Mistake` for files that are missing or damaged, for adapters of another kind, and
    for adapters that do not fit the model.
    """
    path = Path(path)
    where, file = path / "adapter_config.json", path / "adapter_model.safetensors"
    config = read_json(where)
    if config.get("peft_type") != "LORA":
        raise Mistake(
            f"{where} is missing or does not describe LoRA; name a folder that PEFT wrote"
        )
    for option, value in config.items():
        if not _is_supported(option, value):
            raise Mistake(
                f"{where}: {option} is {value!r}, which is not supported; train without it"
            )
    with contextlib.ExitStack() as stack:
        stored = StoredTensors({file: open_safetensors(file, stack)})
        pairs = _read_pairs(stored, model, file)
    rank = next(iter(pairs.values()))[0].shape[-2]
    alpha, detail = config.get("lora_alpha", 8), config.get("r", rank)
    if detail != rank:
        raise Mistake(
            f"{where}: r is {detail!r}, but the matrices have rank {rank}; "
            "take both files from one adapter"
        )
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise Mistake(f"{where}: lora_alpha is {alpha!r}, not a number; take PEFT's own file")
    return lora.put_adapters(
        model, pairs, alpha / (rank**0.5 if config.get("use_rslora") else rank)
    )


def _is_supported(option: str, value: Any) -> bool:
    """Whether the adapter stays a product of two matrices, added to the weights, with this option:
    it is known to be harmless, or is switched off."""
    if option == "init_lora_weights":
        return value in KNOWN_INITIALISATIONS
    return option in IGNORED_OPTIONS or not value or (option, value) == ("bias", "none")


def _read_pairs(
    stored: StoredTensors, model: LanguageModel, file: Path
) -> dict[str, tuple[Array, Array]]:
    """Return A and B of each projection, with all layers stacked."""
    blocks = model_families.stacked_blocks(model)
    modules = model_projections(model)
    layers = blocks.before.scale.shape[0]
    parts = [TENSOR_NAME.fullmatch(name) for name in sorted(stored.names)]
    names = {part[3] for part in parts if part is not None}
    expected = {_tensor_name(i, modules[name], name, x) for name in names & modules.keys()
                for i in range(layers) for x in "AB"}  # fmt: skip
    odd = expected ^ stored.names
    if odd or not names:
        name = min(odd, default="every tensor")
        detail = "is missing" if name in expected or not odd else "has no place in this model"
        raise Mistake(f"{file}: {name} {detail}; use the model that the adapter was trained for")
    pairs = {}
    for name, each in modules.items():
        if name not in names:
            continue
        first, second = (
            _stack_layers(stored, [_tensor_name(i, each, name, x) for i in range(layers)], file)
            for x in "AB"
        )
        inputs, outputs = getattr(blocks, each.field).weight.shape[-2], each.stop - each.start
        if (first.shape[2], second.shape[1:]) != (inputs, (outputs, first.shape[1])):
            detail = f"A and B of {name} are {list(first.shape[1:])} and {list(second.shape[1:])}"
            right = f"but the model's layer has {inputs} inputs, {outputs} outputs"
            raise Mistake(f"{file}: {detail}, {right}; use the model it was trained for")
        pairs[name] = (jnp.asarray(first), jnp.asarray(second))
    return pairs


def _stack_layers(stored: StoredTensors, names: list[str], file: Path) -> np.ndarray:
    """Return the matrices of all layers as one array."""
    right = stored.shape(names[0])
    for name in names:
        if stored.shape(name) != right or len(right) != 2:
            detail = f"{name} has shape {list(stored.shape(name))}, layer 0's has {list(right)}"
            raise Mistake(
                f"{file}: {detail}; copy the adapter again, or use one of equal rank in all layers"
            )
    return np.stack([stored.read(name).astype(np.float32) for name in names])


def _tensor_name(layer: int, each: Projection, name: str, letter: str) -> str:
    module = f"layers.{layer}.{each.module}.{name}"
    return f"base_model.model.model.{module}.lora_{letter}.weight"

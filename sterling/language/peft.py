"""LoRA adapters as Hugging Face's PEFT keeps them: adapter_config.json, adapter_model.safetensors.

What is written here is served by whatever loads PEFT's adapters beside the model they were learned
for.
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

from sterling.language import families, lora
from sterling.language.folder import replacing_folder
from sterling.language.model import LanguageModel
from sterling.language.tokenizer import read_json
from sterling.language.weights import Stored, open_weights
from sterling.types import Mistake

NAME = re.compile(
    r"base_model\.model\.model\.layers\.(\d+)\.(self_attn|mlp)\.(\w+)\.lora_([AB])\.weight"
)
HARMLESS = {  # of PEFT's options: those that say nothing of what a learned adapter computes
    *("peft_type", "task_type", "auto_mapping", "peft_version", "inference_mode", "runtime_config"),
    *("base_model_name_or_path", "revision", "megatron_core", "qalora_group_size"),
    *("target_modules", "exclude_modules", "layers_to_transform", "layers_pattern"),
    *("r", "lora_alpha", "use_rslora", "lora_dropout"),  # of which more is read, or not needed
    *("eva_config", "corda_config", "loftq_config", "lora_ga_config"),  # of how it begins
}
# How adapters begin without a change to the weights that they are added to (peft 0.21, layer.py);
# others, as "pissa" and "olora", change them each time that the adapter is loaded.
BEGINNINGS = (True, False, None, "gaussian", "orthogonal", "eva")


def write(
    path: str | os.PathLike[str], model: LanguageModel, base: str = "", *, overwrite: bool = False
) -> Path:
    """Write the adapters alone as PEFT does: adapter_config.json and adapter_model.safetensors.

    ``base`` is the name or folder of the model that they belong to. Raises :class:`Mistake` for a
    model without adapters, and where a folder with files is there already, unless ``overwrite``.
    """
    found = lora.adapted(model)
    if not found:
        raise Mistake("the model has no LoRA adapters to write; save it whole, or lora.add some")
    every = [each for linear in found.values() for each in linear.adapters]
    rank, scale = every[0].first.shape[-2], next(iter(found.values())).scale
    modules = families.projections(model.stack.form, model.embedding.shape[1])
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
    with replacing_folder(Path(path), overwrite) as partial:
        text = json.dumps(config, indent=2)
        (partial / "adapter_config.json").write_text(text + "\n", "utf-8")
        save_file(tensors, partial / "adapter_model.safetensors", {"format": "pt"})
    return Path(path)


def read(path: str | os.PathLike[str], model: LanguageModel) -> LanguageModel:
    """The model with the adapters of a PEFT folder.

    Raises :class:`Mistake` for files that are missing or damaged, for adapters of another kind, and
    for those that do not fit the model.
    """
    path = Path(path)
    where, file = path / "adapter_config.json", path / "adapter_model.safetensors"
    config = read_json(where)
    if config.get("peft_type") != "LORA":
        raise Mistake(f"{where} is missing or says nothing of LoRA; name a folder that PEFT wrote")
    for option, value in config.items():
        if not _plain(option, value):
            raise Mistake(f"{where}: {option} is {value!r}, not known; train without it")
    with contextlib.ExitStack() as stack:
        stored = Stored({file: open_weights(file, stack)})
        pairs = _pairs(stored, model, file)
    rank = next(iter(pairs.values()))[0].shape[-2]
    alpha, said = config.get("lora_alpha", 8), config.get("r", rank)
    if said != rank:
        raise Mistake(f"{where}: r is {said!r} and the matrices' rank {rank}; take both from one")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float):
        raise Mistake(f"{where}: lora_alpha is {alpha!r}, no number; take PEFT's own file")
    return lora.put(model, pairs, alpha / (rank**0.5 if config.get("use_rslora") else rank))


def _plain(option: str, value: Any) -> bool:
    """Whether an option leaves the adapter the product of two matrices, added to the weights: it is
    known to, or asks for nothing."""
    if option == "init_lora_weights":
        return value in BEGINNINGS
    return option in HARMLESS or not value or (option, value) == ("bias", "none")


def _pairs(stored: Stored, model: LanguageModel, file: Path) -> dict[str, tuple[Array, Array]]:
    """A and B of each projection, all layers together."""
    blocks = families.blocks(model)
    modules = families.projections(model.stack.form, model.embedding.shape[1])
    layers = blocks.before.scale.shape[0]
    parts = [NAME.fullmatch(name) for name in sorted(stored.names)]
    names = {part[3] for part in parts if part is not None}
    expected = {_name(i, modules[name], name, x) for name in names & modules.keys()
                for i in range(layers) for x in "AB"}  # fmt: skip
    odd = expected ^ stored.names
    if odd or not names:
        name = min(odd, default="every tensor")
        said = "is missing" if name in expected or not odd else "has no place in this model"
        raise Mistake(f"{file}: {name} {said}; use the model that the adapter was learned for")
    pairs = {}
    for name, each in modules.items():
        if name not in names:
            continue
        first, second = (
            _stacked(stored, [_name(i, each, name, x) for i in range(layers)], file) for x in "AB"
        )
        inputs, outputs = getattr(blocks, each.field).weight.shape[-2], each.stop - each.start
        if (first.shape[2], second.shape[1:]) != (inputs, (outputs, first.shape[1])):
            said = f"{name} is {list(first.shape[1:])} and {list(second.shape[1:])}"
            raise Mistake(f"{file}: {said}, the model's has {inputs} inputs, {outputs} outputs")
        pairs[name] = (jnp.asarray(first), jnp.asarray(second))
    return pairs


def _stacked(stored: Stored, names: list[str], file: Path) -> np.ndarray:
    """A matrix of every layer, as one array."""
    right = stored.shape(names[0])
    for name in names:
        if stored.shape(name) != right or len(right) != 2:
            said = f"{name} is {list(stored.shape(name))}, and layer 0's is {list(right)}"
            raise Mistake(f"{file}: {said}; copy the adapter again, matrices of one rank are read")
    return np.stack([stored.read(name).astype(np.float32) for name in names])


def _name(layer: int, each: families.Projection, name: str, letter: str) -> str:
    module = f"layers.{layer}.{each.module}.{name}"
    return f"base_model.model.model.{module}.lora_{letter}.weight"

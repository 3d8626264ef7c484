"""Load and save models and tokenizers as Hugging Face folders, which servers and trainers open.

    config.json                      the model's architecture
    model.safetensors                its weights; large ones are split into several files,
    model.safetensors.index.json     with an index of which tensor is in which file
    generation_config.json           which tokens end a turn
    tokenizer.json, tokenizer_config.json, chat_template.jinja

Weights are read and written tensor by tensor, so little more memory is needed than the model takes.
A folder is written under a temporary name and then renamed: it appears complete, or not at all.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jax.typing import DTypeLike

from sterling.language.models import lora, model_families
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.model_weights import (
    MAX_FILE_BYTES,
    fill_model,
    open_checkpoint,
    write_json,
    write_weights,
)
from sterling.language.tokenizer import Tokenizer, read_json
from sterling.system.atomic_files import flush_to_disk
from sterling.system.mistake import Mistake


def load(
    folder: str | os.PathLike[str], dtype: DTypeLike | None = None
) -> tuple[LanguageModel, Tokenizer]:
    """Load the model and the tokenizer of a Hugging Face folder: Llama, Mistral, OLMo 2,
    Phi-3, Qwen2, Qwen2.5, Qwen3 or SmolLM3.

    ``dtype`` of the weights: float32, bfloat16 or float16; None: as they are stored. If anything is
    missing, damaged or unsupported, raises :class:`Mistake` with the file and a remedy.
    """
    path = Path(folder)
    if not path.is_dir():
        raise Mistake(f"{path} is not a folder; name one with config.json, or download the model")
    where = path / "config.json"
    config = read_json(where)
    if not config:
        raise Mistake(f"{where} is missing or empty; name the folder of a complete model")
    plan = model_families.plan_from_config(config, str(where))
    tokenizer = Tokenizer.read(path)
    _check_vocabulary(tokenizer, plan.vocabulary, str(path))
    with contextlib.ExitStack() as stack:
        stored = open_checkpoint(path, stack)
        model = fill_model(stored, plan, path, dtype, json.dumps(config))
    return model, tokenizer


def save(
    folder: str | os.PathLike[str],
    model: LanguageModel,
    tokenizer: Tokenizer,
    *,
    overwrite: bool = False,
    shard: int = MAX_FILE_BYTES,
) -> Path:
    """Write a folder that :func:`load`, transformers and servers can open; return its path.

    Weights keep their dtype; LoRA adapters are merged into them. No file of weights is larger than
    ``shard`` bytes, except for a single larger tensor. Raises :class:`Mistake` if the folder
    already holds files, unless ``overwrite`` (then it is replaced completely), and for a tokenizer
    that has more tokens than the model.
    """
    model = lora.merge_adapters(model)
    _check_vocabulary(tokenizer, model.vocabulary, "the model to be saved")
    config = model_families.config_of_model(model) | generation_config(tokenizer)
    with replace_folder(Path(folder), overwrite) as partial:
        write_json(partial / "config.json", config)
        write_json(partial / "generation_config.json", generation_config(tokenizer))
        tokenizer.write(partial)
        write_weights(partial, model, shard)
    return Path(folder)


@contextlib.contextmanager
def replace_folder(path: Path, overwrite: bool) -> Iterator[Path]:
    """Yield a new folder to write into; it appears under ``path`` complete, or not at all.

    An existing folder is moved aside before and deleted afterwards.
    """
    path = Path(os.path.abspath(path))
    if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not overwrite)):
        raise Mistake(f"{path} already exists; name another folder, or pass overwrite")
    partial, aside = (path.with_name(f".{path.name}.{x}-{os.getpid()}") for x in ("partial", "old"))
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        yield partial
        for file in partial.iterdir():
            flush_to_disk(file)
        flush_to_disk(partial)
        if path.exists():
            path.rename(aside)
        partial.rename(path)
        flush_to_disk(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if aside.exists() and not path.exists():
            aside.rename(path)  # restore the existing folder
        shutil.rmtree(aside, ignore_errors=True)


def generation_config(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of generation_config.json: the tokens that end a turn, and the padding
    token."""
    stops = list(tokenizer.stops)
    return {"eos_token_id": stops if len(stops) > 1 else stops[0], "pad_token_id": tokenizer.pad}


def _check_vocabulary(tokenizer: Tokenizer, vocabulary: int, where: str) -> None:
    if tokenizer.vocabulary > vocabulary:
        known = f"the tokenizer has {tokenizer.vocabulary:,} tokens, the model {vocabulary:,}"
        raise Mistake(f"{where}: {known}; take both from one model")

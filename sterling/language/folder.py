"""Models and tokenizers as Hugging Face folders, which every server and trainer opens.

    config.json                      what the model is
    model.safetensors                its weights; large ones are split into several files,
    model.safetensors.index.json     and this says which tensor lies where
    generation_config.json           which tokens end a turn
    tokenizer.json, tokenizer_config.json, chat_template.jinja

Weights are read and written tensor by tensor, so that little more than the model is in memory. A
folder is written under another name first: under its own it appears whole, or not at all.
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

from sterling.disk import sync
from sterling.language import families, lora
from sterling.language.model import LanguageModel
from sterling.language.tokenizer import Tokenizer, read_json
from sterling.language.weights import SHARD, fill, open_folder, write_json, write_weights
from sterling.types import Mistake


def load(
    folder: str | os.PathLike[str], dtype: DTypeLike | None = None
) -> tuple[LanguageModel, Tokenizer]:
    """The model and the tokenizer of a Hugging Face folder: Llama, Qwen2, Qwen2.5 or Qwen3.

    ``dtype`` of the weights: float32, bfloat16 or float16; None: as they are stored. Raises
    :class:`Mistake` with the file and a remedy for whatever is missing, damaged or not known;
    then nothing was loaded.
    """
    path = Path(folder)
    if not path.is_dir():
        raise Mistake(f"{path} is no folder; name one with config.json, or download the model")
    where = path / "config.json"
    config = read_json(where)
    if not config:
        raise Mistake(f"{where} is missing or empty; name the folder of a whole model")
    wanted = families.plan(config, str(where))
    tokenizer = Tokenizer.read(path)
    _fits(tokenizer, wanted.vocabulary, str(path))
    with contextlib.ExitStack() as stack:
        stored = open_folder(path, stack)
        model = fill(stored, wanted, path, dtype, json.dumps(config))
    return model, tokenizer


def save(
    folder: str | os.PathLike[str],
    model: LanguageModel,
    tokenizer: Tokenizer,
    *,
    overwrite: bool = False,
    shard: int = SHARD,
) -> Path:
    """Write a folder that :func:`load`, transformers and servers open; where it is.

    Weights keep their type; LoRA's are added to them. No file of weights is larger than ``shard``
    bytes, except for a single larger tensor. Raises :class:`Mistake` where a folder with files is
    there already, unless ``overwrite``: then it is replaced, all of it; and for a tokenizer that
    has more tokens than the model.
    """
    model = lora.merged(model)
    _fits(tokenizer, model.vocabulary, "the model to be saved")
    config = families.config(model) | tokens(tokenizer)
    with replacing_folder(Path(folder), overwrite) as partial:
        write_json(partial / "config.json", config)
        write_json(partial / "generation_config.json", tokens(tokenizer))
        tokenizer.write(partial)
        write_weights(partial, model, shard)
    return Path(folder)


@contextlib.contextmanager
def replacing_folder(path: Path, overwrite: bool) -> Iterator[Path]:
    """A new folder to write into; it appears under ``path`` whole, or not at all.

    One that is replaced is moved aside before and removed after.
    """
    path = Path(os.path.abspath(path))
    if path.exists() and (not path.is_dir() or (any(path.iterdir()) and not overwrite)):
        raise Mistake(f"{path} is there already; name another folder, or give overwrite")
    partial, aside = (path.with_name(f".{path.name}.{x}-{os.getpid()}") for x in ("partial", "old"))
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(partial, ignore_errors=True)
    try:
        partial.mkdir()
        yield partial
        for file in partial.iterdir():
            sync(file)
        sync(partial)
        if path.exists():
            path.rename(aside)
        partial.rename(path)
        sync(path.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        if aside.exists() and not path.exists():
            aside.rename(path)  # what was there stays
        shutil.rmtree(aside, ignore_errors=True)


def tokens(tokenizer: Tokenizer) -> dict[str, Any]:
    """What generation_config.json says: the tokens that end a turn, and the one that pads."""
    stops = list(tokenizer.stops)
    return {"eos_token_id": stops if len(stops) > 1 else stops[0], "pad_token_id": tokenizer.pad}


def _fits(tokenizer: Tokenizer, vocabulary: int, where: str) -> None:
    if tokenizer.vocabulary > vocabulary:
        known = f"the tokenizer has {tokenizer.vocabulary:,} tokens, the model {vocabulary:,}"
        raise Mistake(f"{where}: {known}; take both from one model")

"""What a run that teaches a language model begins with, and what it keeps of that.

A run keeps, in its folder, all that it takes to be opened where its base is no more:

    model/form.json      which model it was, its form and its types
          tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json

The weights are in the run's checkpoints, adapters and what they are added to as well.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from sterling.language import families, lora, weights
from sterling.language.folder import load, tokens
from sterling.language.model import SIZES, LanguageModel
from sterling.language.tokenizer import Tokenizer, read_json
from sterling.notice import say
from sterling.training import folder
from sterling.training.settings import Settings
from sterling.types import Mistake

FOLDER, FORM = "model", "form.json"
BYTES = "-bytes"  # after a new model's size: its tokens are bytes, not characters
NEW = {**dict.fromkeys(SIZES, ""), **{f"{size}{BYTES}": BYTES for size in SIZES}}
PATHS = ("model", "texts", "dump", "replay", "pool")  # settings that name files


class Base(str):
    """The name of what a run began with, that knows the folder in which the run keeps its own.

    A string, for settings are handed on without their run: whoever asks :func:`start` for the
    tokenizer of a loaded run gets the run's, whatever has become of the base.
    """

    kept: Path | None

    def __new__(cls, name: str, kept: Path | None = None) -> Base:
        """The name, and the folder; None: there is none."""
        made = super().__new__(cls, name)
        made.kept = kept
        return made


@dataclasses.dataclass(frozen=True, eq=False)
class Start:
    """What a run begins with."""

    tokenizer: Tokenizer
    size: str = ""  # of a new model
    read: Callable[[], PyTree] | None = None  # or what reads trained ones
    shapes: LanguageModel | None = None  # theirs, where they are known without reading
    dtype: str = "float32"  # in which what is taught is to be written
    run: bool = False  # a run made them
    held_out: float | None = None  # share of the questions that the run kept to judge by

    @functools.cached_property
    def models(self) -> PyTree:
        """Trained models, leaves (model, ...); None where they are new."""
        return None if self.read is None else self.read()

    @property
    def vocabulary(self) -> int:
        """Tokens that the model knows."""
        if self.models is None:
            return self.tokenizer.vocabulary
        return int(self.models.embedding.shape[1])

    def among(self, seeds: list[int]) -> PyTree:
        """A trained model for each seed, in turn where they are fewer; of equal seeds the same."""
        count = self.models.embedding.shape[0]
        number = {seed: i % count for i, seed in enumerate(dict.fromkeys(seeds))}
        which = jnp.asarray([number[seed] for seed in seeds], jnp.int32)
        return jax.tree.map(lambda x: x[which], self.models)


def start(model: str) -> Start:
    """A size of new models, a Hugging Face folder, or a run that taught one; else a Mistake."""
    return _start(str(model), getattr(model, "kept", None))


@functools.lru_cache(maxsize=2)
def _start(model: str, kept: Path | None) -> Start:
    if model in NEW:
        tokenizer = Tokenizer.bytes() if NEW[model] else Tokenizer.characters()
        return Start(tokenizer, size=model.removesuffix(BYTES))
    if kept is not None:
        return _of_kept(model, kept)
    path = Path(model)
    if not (path / "config.json").is_file():
        raise Mistake(
            f"model {model!r} is neither a size ({', '.join(SIZES)}) nor a folder with config.json"
        )
    if "algorithm" in read_json(path / "config.json"):
        return _of_run(path)
    loaded, tokenizer = load(path)
    models = jax.tree.map(lambda x: jnp.asarray(x)[None], loaded)
    return Start(tokenizer, read=lambda: models, dtype=str(loaded.embedding.dtype))


def _of_run(path: Path) -> Start:
    from sterling.training.trained import load

    run = load(path)
    if run.settings.speech is None:
        raise Mistake(f"{path} taught no language model; name one that sft or grpo made")
    begun, models = start(run.settings.speech.model), run.agent.state.model
    kept = run.settings.speech.held_out
    return Start(begun.tokenizer, read=lambda: models, dtype=begun.dtype, run=True, held_out=kept)


def _of_kept(model: str, kept: Path) -> Start:
    """What a run itself knows of its base, which is read only where its weights are asked for."""

    def read() -> PyTree:
        if not (Path(model) / "config.json").is_file():
            remedy = "put it back there, or do without what the run began with"
            raise Mistake(f"{model}, which the run was begun with, is not there any more; {remedy}")
        return start(model).models

    form = folder.read_json(kept / FORM)
    made = Tokenizer.read(kept)
    return Start(made, "", read, _shapes(form, kept / FORM), form["dtype"], form["run"])


def _shapes(form: dict[str, Any], where: Path) -> LanguageModel:
    """The form of the model that a run began with."""
    wanted, adapters = families.plan(form["config"], str(where)), form["lora"]

    def make() -> LanguageModel:
        model = weights.blank(wanted, json.dumps(form["config"]))
        model = weights.typed(model, form["stored"])
        return lora.add(model, **adapters) if adapters else model

    return jax.eval_shape(make)


def keep(path: Path, settings: Settings) -> None:
    """Write into a run's folder what it takes to open it without what it begins with."""
    where = path / FOLDER
    if settings.speech is None or settings.speech.model in NEW or (where / FORM).exists():
        return
    begun = start(settings.speech.model)
    model = jax.eval_shape(lambda: jax.tree.map(lambda x: x[0], begun.models))
    form = {
        "base": settings.speech.model,
        "run": begun.run,
        "dtype": begun.dtype,
        "stored": str(model.embedding.dtype),
        "lora": lora.described(model),
        "config": families.config(model),
    }
    begun.tokenizer.write(where)
    folder.write_json(where / "generation_config.json", tokens(begun.tokenizer))
    folder.write_json(where / FORM, form)  # last: with it the folder is whole


def measured(settings: Settings) -> Settings:
    """The settings; said where their lines are longer than what the model was made for."""
    asked = settings.speech
    if asked is None or asked.model in NEW:
        return settings
    models = start(asked.model).models
    known = json.loads(models.origin or "{}").get("max_position_embeddings")
    if isinstance(known, int) and settings.context > known:
        said = f"lines have up to {settings.context} tokens, and {asked.model} was made for {known}"
        say(f"{said}; --context {known} cuts them there")
    return settings


def owned(settings: Settings, path: Path) -> Settings:
    """A loaded run's settings, that know what the run keeps of its model."""
    if settings.speech is None:
        return settings
    parts = sorted((path / "parts").glob(f"*/{FOLDER}"))  # of seeds in processes of their own
    found = next((each for each in (path / FOLDER, *parts) if (each / FORM).is_file()), None)
    if found is None:
        return settings
    base = Base(folder.read_json(found / FORM)["base"], found.absolute())
    return dataclasses.replace(settings, speech=dataclasses.replace(settings.speech, model=base))


def located(settings: Settings) -> Settings:
    """The settings with whole paths, which hold from any directory."""
    asked = settings.speech
    if asked is None:
        return settings
    named = {name: getattr(asked, name) for name in PATHS}
    whole = {name: os.path.abspath(at) for name, at in named.items() if at and at not in NEW}
    return dataclasses.replace(settings, speech=dataclasses.replace(asked, **whole))

"""The base model of a language run: find it, create learners from it, and copy what loading needs.

A run's folder holds all that is needed to load it after its base model has been deleted:

    model/form.json      the base model's name, architecture and types
          tokenizer.json, tokenizer_config.json, chat_template.jinja, generation_config.json

The weights are in the run's checkpoints: adapters, and the weights that they adapt.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from gymnasium import spaces
from jaxtyping import Array, Int, Key, PyTree

from sterling import algorithms, random_keys
from sterling.language.models import lora, model_families, model_weights
from sterling.language.models.causal_lm import MODEL_SIZES, LanguageModel, tiny, with_remat
from sterling.language.models.model_folder import generation_config, load
from sterling.language.tokenizer import Tokenizer, read_json
from sterling.lookup.name_suggestions import did_you_mean
from sterling.seed_axis import over_seeds
from sterling.training.agent import Agent, create_agent, first_schedules
from sterling.training.config.run_options import LanguageSettings
from sterling.training.config.settings import Settings
from sterling.training.config.stored_settings import read_settings
from sterling.training.language.model_names import BYTES_SUFFIX, NEW_MODELS
from sterling.training.phases.phase_sequence import learner_needs, total_iterations
from sterling.training.saving import checkpoint, run_folder
from sterling.types import Mistake, Spec

MODEL_FOLDER, FORM_FILE = "model", "form.json"


class BaseModelName(str):
    """A base model's name that also holds the path of the copy in the run's folder.

    It is a string because settings are passed on without their run. With it :func:`starting_model`
    finds the tokenizer of a loaded run even after the base model has been deleted.
    """

    kept: Path | None

    def __new__(cls, name: str, kept: Path | None = None) -> BaseModelName:
        """Return the name with the folder of the copy (None: no copy)."""
        made = super().__new__(cls, name)
        made.kept = kept
        return made


@dataclasses.dataclass(frozen=True, eq=False)
class StartingModel:
    """The model and tokenizer that a run begins with."""

    tokenizer: Tokenizer
    size: str = ""  # the size of a new model
    read: Callable[[], PyTree] | None = None  # or a function that reads trained models
    shapes: LanguageModel | None = None  # their shapes, if known without reading
    dtype: str = "float32"  # the type in which the trained model is written
    run: bool = False  # whether a Sterling run trained them
    held_out: float | None = None  # share of the questions that this run held out for evaluation

    @functools.cached_property
    def models(self) -> PyTree:
        """Return the trained models, leaves (model, ...); None for a new model."""
        return None if self.read is None else self.read()

    @property
    def vocabulary(self) -> int:
        """Return the size of the model's vocabulary."""
        if self.models is None:
            return self.tokenizer.vocabulary
        return int(self.models.embedding.shape[1])

    def models_for_seeds(self, seeds: list[int]) -> PyTree:
        """Return a trained model for each seed. With fewer models than seeds they are reused in
        turn; equal seeds get the same model."""
        count = self.models.embedding.shape[0]
        number = {seed: i % count for i, seed in enumerate(dict.fromkeys(seeds))}
        which = jnp.asarray([number[seed] for seed in seeds], jnp.int32)
        return jax.tree.map(lambda x: x[which], self.models)


def starting_model(model: str) -> StartingModel:
    """Return the base model for a size of new models, a Hugging Face folder, or a run folder.
    Raise Mistake for anything else."""
    return _read_starting_model(str(model), getattr(model, "kept", None))


@functools.lru_cache(maxsize=2)
def _read_starting_model(model: str, kept: Path | None) -> StartingModel:
    if model in NEW_MODELS:
        tokenizer = Tokenizer.bytes() if NEW_MODELS[model] else Tokenizer.characters()
        return StartingModel(tokenizer, size=model.removesuffix(BYTES_SUFFIX))
    if kept is not None:
        return _starting_model_of_copy(model, kept)
    path = Path(model)
    if not (path / "config.json").is_file():
        raise Mistake(
            f"model={model!r} is neither a size ({', '.join(MODEL_SIZES)}) nor a folder with "
            f"config.json{did_you_mean(path.name, MODEL_SIZES) or '.'}"
        )
    if "algorithm" in read_json(path / "config.json"):
        return _starting_model_of_run(path)
    loaded, tokenizer = load(path)
    models = jax.tree.map(lambda x: jnp.asarray(x)[None], loaded)
    return StartingModel(tokenizer, read=lambda: models, dtype=str(loaded.embedding.dtype))


def _starting_model_of_run(path: Path) -> StartingModel:
    settings = with_kept_base(read_settings(path), path)
    if settings.speech is None:
        raise Mistake(f"{path} trained no language model. Name a run of sft or grpo.")
    base, models = starting_model(settings.speech.model), load_learners(path, settings).state.model
    held_out = settings.speech.held_out
    return StartingModel(
        base.tokenizer, read=lambda: models, dtype=base.dtype, run=True, held_out=held_out
    )


def _starting_model_of_copy(model: str, kept: Path) -> StartingModel:
    """Return the base model from the copy in a run's folder; the original's weights are read only
    if they are asked for."""

    def read() -> PyTree:
        if not (Path(model) / "config.json").is_file():
            raise Mistake(f"{model}, the base model of this run, no longer exists. Put it back.")
        return starting_model(model).models

    form = run_folder.read_json(kept / FORM_FILE)
    made = Tokenizer.read(kept)
    return StartingModel(
        made, "", read, _model_shapes(form, kept / FORM_FILE), form["dtype"], form["run"]
    )


def _model_shapes(form: dict[str, Any], where: Path) -> LanguageModel:
    """Return the shapes of the model that a run began with."""
    wanted, adapters = model_families.plan_from_config(form["config"], str(where)), form["lora"]

    def make() -> LanguageModel:
        model = model_weights.blank_model(wanted, json.dumps(form["config"]))
        model = model_weights.with_dtype(model, form["stored"])
        return lora.add_adapters(model, **adapters) if adapters else model

    return jax.eval_shape(make)


def keep_base_model(path: Path, settings: Settings) -> None:
    """Copy into a run's folder what is needed to load the run without its base model."""
    folder = path / MODEL_FOLDER
    if (
        settings.speech is None
        or settings.speech.model in NEW_MODELS
        or (folder / FORM_FILE).exists()
    ):
        return
    base = starting_model(settings.speech.model)
    model = jax.eval_shape(lambda: jax.tree.map(lambda x: x[0], base.models))
    form = {
        "base": settings.speech.model,
        "run": base.run,
        "dtype": base.dtype,
        "stored": str(model.embedding.dtype),
        "lora": lora.adapter_settings(model),
        "config": model_families.config_of_model(model),
    }
    base.tokenizer.write(folder)
    run_folder.write_json(folder / "generation_config.json", generation_config(base.tokenizer))
    run_folder.write_json(folder / FORM_FILE, form)  # last: it marks the copy as complete


def with_kept_base(settings: Settings, path: Path) -> Settings:
    """Return a loaded run's settings, with the path of the base model's copy filled in."""
    if settings.speech is None:
        return settings
    parts = sorted((path / "parts").glob(f"*/{MODEL_FOLDER}"))  # of seeds in processes of their own
    found = next(
        (each for each in (path / MODEL_FOLDER, *parts) if (each / FORM_FILE).is_file()), None
    )
    if found is None:
        return settings
    base = BaseModelName(run_folder.read_json(found / FORM_FILE)["base"], found.absolute())
    return dataclasses.replace(settings, speech=dataclasses.replace(settings.speech, model=base))


def language_settings(settings: Settings) -> LanguageSettings:
    """Return the language settings of a language run."""
    assert settings.speech is not None  # callers have checked that it is a language run
    return settings.speech


def language_spec(settings: Settings, base: StartingModel) -> Spec:
    """Return the problem for the learner: the vocabulary as spaces, and a new model's factory."""
    size = base.size

    def make(key: Array) -> LanguageModel:
        return prepare_model(tiny(base.vocabulary, size, key=key), settings, key)

    tokens = spaces.Discrete(base.vocabulary)
    count = total_iterations(settings)
    return Spec(tokens, tokens, iterations=count, model=make if size else None)


def prepare_model(model: LanguageModel, settings: Settings, key: Key[Array, ""]) -> LanguageModel:
    """Return the model as it is trained: with LoRA adapters and recomputed layers, if asked for."""
    speech = language_settings(settings)
    if speech.lora:
        model = lora.add_adapters(model, speech.lora, key=random_keys.fold(key, "lora"))
    elif not lora.adapted_linears(model):
        model = model_weights.with_dtype(
            model, jnp.float32
        )  # steps of 1e-6 are lost on weights in bfloat16
    return with_remat(model, speech.forget)


def create_learners(
    settings: Settings, seeds: Int[Array, "seed"] | None = None, own: Any = None
) -> Agent:
    """Return a learner for every seed, with the base model of the settings; ``own`` as in
    ``Agent.create``."""
    base = starting_model(language_settings(settings).model)
    seeds = jnp.asarray(settings.seeds, jnp.int32) if seeds is None else seeds
    if base.size:
        return create_agent(settings, language_spec(settings, base), seeds, own)
    parts = (base.models_for_seeds(seeds.tolist()), random_keys.for_seeds(seeds, "model", 0))
    create = _state_builder(settings)
    made = _make_agent(settings, create(*parts) if own is None else create(*parts, own))
    return made.with_schedules(first_schedules(settings), 0)


def learner_template(settings: Settings) -> Agent:
    """Return agents with the right shapes, as a template for loading; without reading the base
    model if the run's copy gives its shapes."""
    shapes, count = starting_model(language_settings(settings).model).shapes, len(settings.seeds)
    if shapes is None:
        return create_learners(settings).without_schedules()
    many = [jax.ShapeDtypeStruct((count, *x.shape), x.dtype) for x in jax.tree.leaves(shapes)]
    models = jax.tree.unflatten(jax.tree.structure(shapes), many)
    seeds = jnp.asarray(settings.seeds, jnp.int32)
    states = jax.eval_shape(
        _state_builder(settings), models, random_keys.for_seeds(seeds, "model", 0)
    )
    schedules = first_schedules(settings)

    def whole(states: PyTree) -> Agent:
        return _make_agent(settings, states).with_schedules(schedules, 0).without_schedules()

    return _make_agent(settings, states) if schedules is None else jax.eval_shape(whole, states)


def _make_agent(settings: Settings, states: PyTree) -> Agent:
    algorithm: Any = algorithms.find(settings.algorithm)
    return Agent(states, algorithm, learner_needs(settings), settings.program_strategy)


def _state_builder(settings: Settings) -> Callable[..., PyTree]:
    """Return a function that creates the learners' states for all seeds from trained models."""
    algorithm: Any = algorithms.find(settings.algorithm)

    def begin(model: LanguageModel, key: Key[Array, ""], config: Any = settings.config) -> Any:
        return algorithm.begin(prepare_model(model, settings, key), config)

    return jax.jit(over_seeds(settings.program_strategy, begin))


def load_learners(path: Path, settings: Settings) -> Agent:
    """Load the learners of a language run from its newest checkpoint."""
    template = learner_template(settings)
    agent, _ = checkpoint.load_subtree(run_folder.checkpoints_path(path), "agent", template)
    return agent

"""Load frozen models that judge answers: reward models as scorers, language models as judges in
words, and teachers, whose probabilities a student learns."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from sterling.algorithms.language import reward_model
from sterling.language.engine import slots
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.length_rounding import round_up_length
from sterling.language.task import Family
from sterling.language.tokenizer import Tokenizer, read_json
from sterling.language.worlds import reward_model_world
from sterling.language.worlds.generative_judge import GenerativeJudge
from sterling.language.worlds.judge_rubric import Rubric
from sterling.language.worlds.judged_questions import JudgedQuestions, is_model
from sterling.training.config.run_options import LanguageSettings
from sterling.training.config.settings import Settings
from sterling.training.config.stored_settings import read_settings
from sterling.training.language.base_model import (
    StartingModel,
    language_settings,
    load_learners,
    starting_model,
    with_kept_base,
)
from sterling.training.phases.phase_sequence import learner_needs
from sterling.types import Mistake

_score_jitted = jax.jit(reward_model.score)


def register_reward_model(world: str) -> None:
    """Load and register the reward model of ``scored:RUN:WORLD``; do nothing for other names. Raise
    :class:`Mistake` if the run does not exist or is not a reward model's."""
    if world.startswith(reward_model_world.PREFIX):
        path, _ = reward_model_world.split_name(world)
        if path not in reward_model_world.scorer_names():
            reward_model_world.register_scorer(path, load_scorer(path))


def load_scorer(path: str | Path, seed: int | None = None) -> reward_model_world.Scorer:
    """Load a run's reward model as a scorer; ``seed``: which seed's (default: the first)."""
    folder = Path(path)
    settings = with_kept_base(read_settings(folder), folder)
    if settings.algorithm != "reward" or settings.speech is None:
        made = settings.algorithm
        raise Mistake(f"{path} is a run of {made}, not a reward model. Name a run of `reward`.")
    seeds = settings.seeds
    if seed is not None and seed not in seeds:
        raise Mistake(f"{path} has seeds {', '.join(map(str, seeds))}, not {seed}")
    index = 0 if seed is None else seeds.index(seed)
    state = jax.tree.map(lambda x: x[index], load_learners(folder, settings).state)
    return make_scorer(state, starting_model(settings.speech.model).tokenizer)


def make_scorer(state: reward_model.State, tokenizer: Tokenizer) -> reward_model_world.Scorer:
    """Return a scorer for the reward model ``state`` of one seed. As in training, it reads the
    conversation and the answer up to its end token. Inputs are padded so that few shapes are
    compiled."""

    def score(answers: Sequence[reward_model_world.AnsweredPrompt]) -> list[float]:
        lines = [
            [*tokenizer.encode_opening(messages), *tokenizer.encode_answer(text)]
            for messages, text in answers
        ]
        room, rows = round_up_length(max(map(len, lines))), 1 << (len(lines) - 1).bit_length()
        ids = np.full((rows, room), tokenizer.pad, np.int32)
        lengths = np.ones(rows, np.int32)
        for row, line in enumerate(lines):
            ids[row, : len(line)], lengths[row] = line, len(line)
        found = _score_jitted(state, jnp.asarray(ids), jnp.asarray(lengths))
        return [float(x) for x in np.asarray(found)[: len(lines)]]

    return score


def judge_of(speech: LanguageSettings) -> str | Callable[[Family], JudgedQuestions]:
    """Return a run's judge as :func:`find_judged` takes it: the name of a user's function ("" for
    none), or a language model's questions. Raise :class:`Mistake` for a folder without one."""
    if not is_model(speech.judge):
        return speech.judge
    path = speech.judge
    _check_folder("judge", path, f"Leave judge out, and name the environment scored:{path}:WORLD.")
    return _read_judge(path, speech.rubric, speech.judge_limit, speech.slots).judge_questions


@functools.lru_cache(maxsize=2)  # the worlds of training and of evaluation share it
def _read_judge(path: str, rubric: str, limit: int, count: int) -> GenerativeJudge:
    base, models, longest = _read_model("judge", path)
    model = slots.for_decoding(models, 0)  # of a run's seeds the first one's
    room: dict[str, Any] = {"limit": limit, "longest": longest, "slots": count}
    return GenerativeJudge(path, model, base.tokenizer, Rubric(rubric), **room)


def teacher_of(settings: Settings) -> LanguageModel | None:
    """Return the frozen teacher of a run, leaves without a seed axis; None for a run without one.

    Raise :class:`Mistake` if the learner needs a teacher that is not named or the reverse, for a
    folder without a language model, for one whose tokens are not the student's, and for one that
    reads fewer tokens than the run's texts have.
    """
    speech, name = language_settings(settings), settings.title
    taught = getattr(learner_needs(settings), "teacher", False)
    if taught and not speech.teacher:
        raise Mistake(f"{name} imitates a language model: add --teacher FOLDER (teacher=FOLDER).")
    if speech.teacher and not taught:
        raise Mistake(f"{name} imitates no teacher. Leave out teacher, or use gkd.")
    if not taught:
        return None
    if speech.curriculum == "advantage":
        raise Mistake(f"{name} has no advantages. Use curriculum=learnable, or leave it out.")
    path, student = speech.teacher, starting_model(speech.model).tokenizer
    _check_folder("teacher", path, "Name a run of sft or grpo.")
    model, tokenizer, longest = _read_teacher(path)
    if not tokenizer.has_tokens_of(student):
        raise Mistake(
            f"teacher {path} has other tokens than {speech.model}. Use models of a family."
        )
    if longest is not None and settings.context > longest:
        said = f"teacher {path} reads at most {longest} tokens, and the context has "
        raise Mistake(f"{said}{settings.context}. Shorten it with context={longest}, or limit.")
    return model


@functools.lru_cache(maxsize=1)  # the check before training and the source share it
def _read_teacher(path: str) -> tuple[LanguageModel, Tokenizer, int | None]:
    base, models, longest = _read_model("teacher", path)
    return jax.tree.map(lambda x: x[0], models), base.tokenizer, longest  # of seeds the first


def _check_folder(role: str, path: str, remedy: str) -> None:
    """Raise Mistake if a folder has no model, or a reward model."""
    config = Path(path) / "config.json"
    if not config.is_file():
        raise Mistake(f"{role} {path} is no folder of a language model: it has no config.json.")
    if read_json(config).get("algorithm") == "reward":
        raise Mistake(f"{role} {path} is a reward model, which writes no answers. {remedy}")


def _read_model(role: str, path: str) -> tuple[StartingModel, LanguageModel, int | None]:
    """Return what a folder holds, its models (leaves ``(model, ...)``), and the most tokens that
    they read, if it is known."""
    try:
        base = starting_model(path)
        models = base.models
    except Mistake as error:
        raise Mistake(f"{role} {path} is no language model that can be used: {error}") from error
    return base, models, json.loads(models.origin or "{}").get("max_position_embeddings")

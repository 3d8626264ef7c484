"""Evaluate language models by scenes of their text environment."""

from __future__ import annotations

import itertools

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from sterling import random_keys
from sterling.experience.language import answer_pairs
from sterling.language.engine.played_scenes import play_scenes
from sterling.language.engine.transcript import Transcript
from sterling.language.question_order import next_questions
from sterling.language.scene import begin_scene, check_contexts, check_seat
from sterling.statistics.scores.headline import NAMED_REWARD
from sterling.training.agent import Agent
from sterling.training.config.settings import Settings
from sterling.training.evaluation.metric_rows import is_named_reward
from sterling.training.language import context_length, judge_models
from sterling.training.language.base_model import language_settings, starting_model
from sterling.training.language.text_world import asked_levels, make_voice, text_world


def evaluate_in_scenes(
    agent: Agent,
    settings: Settings,
    seeds: Int[Array, "seed"],
    episodes: int,
    *,
    fresh: bool = False,
) -> dict[str, np.ndarray]:
    """Evaluate a language model by scenes drawn separately from training's (see
    :func:`answer_scenes`). Answers are sampled, because a language model's success is that of its
    samples.

    Return "return" and "length" (generated tokens), ``(seed, episode)``; failed scenes count 0. So
    do "reward/NAME" of named rewards, which are NaN in scenes that they do not apply to.
    A reward model chooses between two answers; its return is 1 if it chooses the better one.
    ``fresh``: draw the scenes apart from those of the evaluations without it.
    """
    if settings.algorithm == "reward":
        right = _prefers_solution(agent, settings, episodes, fresh=fresh)
        return {"return": right, "length": np.ones_like(right)}
    lines = context_length.warn_of_failed_scenes(
        answer_scenes(agent, settings, seeds, episodes, explore=True, fresh=fresh)
    )
    found = {name: np.zeros((len(lines), episodes)) for name in ("return", "length")}
    for seed, own in enumerate(lines):
        for line in (line for line in own if not line.seat):
            found["return"][seed, line.scene] = line.reward
            for name, reward in line.rewards.items():
                blank = np.full_like(found["return"], np.nan)
                found.setdefault(f"{NAMED_REWARD}{name}", blank)[seed, line.scene] = reward
            found["length"][seed, line.scene] = sum(line.own)
    named = [each for name, each in found.items() if is_named_reward(name)]
    for seed, line in ((seed, line) for seed, own in enumerate(lines) for line in own):
        if line.failed and not line.seat:
            for each in named:
                each[seed, line.scene] = 0.0
    return found


def answer_scenes(
    agent: Agent,
    settings: Settings,
    seeds: Int[Array, "seed"],
    episodes: int,
    *,
    explore: bool = False,
    answers: int = 1,
    fresh: bool = False,
) -> list[list[Transcript]]:
    """Return the lines of ``episodes`` scenes for every seed, each answered ``answers`` times. All
    seeds get the same scenes. They are drawn separately from training's, but are guaranteed to be
    different ones only if questions are held out. ``fresh``: draw others; a level with few
    questions asks the same ones."""
    base, place = (
        starting_model(language_settings(settings).model),
        text_world(settings, judging=True),
    )
    levels = asked_levels(settings, place)
    random = np.random.default_rng(np.frombuffer(b"fresh" if fresh else b"evaluate", np.uint8))
    questions = next_questions(place, [levels[i % len(levels)] for i in range(episodes)], random)
    voice = make_voice(settings, place, base.tokenizer)
    scenes = [
        [begin_scene(place, *pair, voice.patience) for pair in questions for _ in range(answers)]
        for _ in settings.seeds
    ]
    keys = random_keys.for_seeds(seeds, "evaluate", int(fresh))
    lines = play_scenes(agent, scenes, voice, keys, explore=explore)
    for line in itertools.chain(*lines):
        check_seat(place, line.seat)
        check_contexts(place, len(line.contexts))
    return lines


def _prefers_solution(
    agent: Agent, settings: Settings, pairs: int, *, fresh: bool
) -> Float[np.ndarray, "seed pair"]:
    """Return 1 if a seed's reward model prefers the world's solution to a wrong variant of it, else
    0, for ``pairs`` pairs that are drawn separately from training's."""
    place = text_world(settings, judging=True)
    levels = asked_levels(settings, place)
    preference_pairs = answer_pairs.make_pairs(place, levels, pairs, seed=1 + fresh)
    tokenizer = starting_model(language_settings(settings).model).tokenizer
    found = []
    for index in range(len(settings.seeds)):
        judge = judge_models.make_scorer(
            jax.tree.map(lambda x, i=index: x[i], agent.state), tokenizer
        )
        better = judge([(pair.messages, pair.chosen) for pair in preference_pairs])
        worse = judge([(pair.messages, pair.rejected) for pair in preference_pairs])
        found.append(np.greater(better, worse))
    return np.array(found, np.float64)

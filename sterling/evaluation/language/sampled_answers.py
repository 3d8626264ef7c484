"""Sample a language model's answers to problems apart from those of training, several answers
each."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from sterling.language import question_order
from sterling.language.engine.transcript import Transcript
from sterling.language.scene_dialogue import ChatSettings
from sterling.training.agent import Agent
from sterling.training.config.run_options import LanguageSettings
from sterling.training.config.settings import Settings
from sterling.training.language.base_model import create_learners, language_settings, starting_model
from sterling.training.language.evaluate_scenes import answer_scenes
from sterling.training.language.resolve_language_settings import with_context_length
from sterling.training.language.text_world import asked_levels, make_voice, text_world
from sterling.training.trained_run import TrainedRun
from sterling.types import Mistake

QUESTIONS = (  # settings of a run that belong to them
    *("held_out", "judge", "rubric", "judge_limit", "rewards", "right_if"),
    *("agent", "agent_seconds", "agent_turns", "agent_tokens", "agent_top_logprobs"),
    *("agent_contexts", "agents_at_once", "failed_reward"),
)
SILENT = "silent"  # the reason of a seat that had no turn


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A model to be evaluated: its agents, and the settings it is asked with."""

    label: str
    agent: Agent
    settings: Settings
    failed: tuple[int, ...] = ()  # seeds that diverged, which are not evaluated
    path: str = ""

    @classmethod
    def from_run(cls, run: TrainedRun, label: str = "") -> Candidate:
        """Create the candidate of a trained run. Raises Mistake if it has no language model, or if
        every seed failed."""
        name = label or (run.path.resolve().name if run.path else run.settings.algorithm)
        if run.settings.speech is None:
            raise Mistake(f"{name} has no language model; evaluate it with --episodes alone")
        failed = tuple(run.result.get("failed_seeds", ()))
        if len(failed) == len(run.settings.seeds):
            raise Mistake(
                f"every seed of {name} failed, so there is nothing to evaluate; give another run"
            )
        return cls(name, run.agent, run.settings, failed, str(run.path or ""))

    def base_model(self) -> Candidate | None:
        """Return the model that the run started from; None if it was random."""
        model = language_settings(self.settings).model
        if starting_model(model).models is None:
            return None
        return Candidate("base", create_learners(self.settings), self.settings, self.failed, model)

    def with_questions(self, environment: Any, levels: str, asked: LanguageSettings) -> Candidate:
        """Return the candidate with another run's questions: its environment, levels, held-out
        share, and what decides how answers are rewarded."""
        judged = {name: getattr(asked, name) for name in QUESTIONS}
        judged |= {"levels": levels, "rewards_each": False}  # which only training does
        own = dataclasses.replace(language_settings(self.settings), **judged)
        named = {"environment": environment, "speech": own, "context": 0}
        settings = with_context_length(dataclasses.replace(self.settings, **named))
        return dataclasses.replace(self, settings=settings)

    def voice(self) -> ChatSettings:
        """Return its voice: tokenizer, answer length, temperature and sampling cuts."""
        tokenizer = starting_model(language_settings(self.settings).model).tokenizer
        return make_voice(self.settings, text_world(self.settings), tokenizer)


@dataclasses.dataclass(frozen=True, eq=False)
class SampledAnswers:
    """All answers of one candidate: ``lines[seed][problem][answer]``, of seat 0."""

    candidate: Candidate
    seeds: tuple[int, ...]  # the evaluated seeds
    levels: tuple[int, ...]  # level of each problem
    lines: list[list[list[Transcript]]]
    greedy: list[list[Transcript]]  # [seed][problem]: greedy answers

    @property
    def solved(self) -> Bool[np.ndarray, "seed problem answer"]:
        """Return which answers are right."""
        return np.array([[[is_solved(one) for one in own] for own in seed] for seed in self.lines])

    def solved_at_all(self, greedy: bool) -> Bool[np.ndarray, "seed problem"]:
        """Return which problems are solved: by the greedy answer, or without ``greedy`` by any
        sampled answer."""
        if greedy:
            return np.array([[is_solved(one) for one in seed] for seed in self.greedy])
        return np.asarray(self.solved.any(2))

    def mean(self, of: Any) -> Float[np.ndarray, "seed problem"]:
        """Average ``of(line)`` over each problem's answers; None values are left out, NaN if all
        are."""
        return np.array(
            [[_mean_known([of(one) for one in own]) for own in seed] for seed in self.lines]
        )

    def every(self) -> list[Transcript]:
        """Return all sampled lines."""
        return [one for seed in self.lines for own in seed for one in own]


def sample_answers(candidate: Candidate, problems: int, samples: int) -> SampledAnswers:
    """Sample ``samples`` answers to each of ``problems`` problems, and one greedy answer.

    The problems depend only on the world, its levels and their number. Raises Mistake for numbers
    below 1.
    """
    for name, many in (("problems", problems), ("samples", samples)):
        if many < 1:
            raise Mistake(f"{name} is {many}; it must be at least 1")
    settings = candidate.settings
    seeds = jnp.asarray(settings.seeds, jnp.int32)
    talk = (candidate.agent, settings, seeds, problems)
    sampled = answer_scenes(*talk, explore=True, answers=samples)
    likeliest = answer_scenes(*talk)
    kept = [at for at, seed in enumerate(settings.seeds) if seed not in candidate.failed]
    asked = asked_levels(settings, text_world(settings))
    return SampledAnswers(
        candidate,
        tuple(settings.seeds[at] for at in kept),
        tuple(asked[at % len(asked)] for at in range(problems)),
        [_by_problem(sampled[at], problems, samples) for at in kept],
        [[own[0] for own in _by_problem(likeliest[at], problems, 1)] for at in kept],
    )


def count_problems(candidate: Candidate) -> int:
    """Return how many different problems the world has; 0: unlimited."""
    settings = candidate.settings
    place = text_world(settings, judging=True)
    asked = asked_levels(settings, place)
    return len(asked) * min(question_order.question_count(place, level) for level in asked)


def is_solved(line: Transcript) -> bool:
    """Whether a line's answer is right. If a judge model's verdicts replace the world's, the
    world's own (``gold``) count."""
    return not line.failed and line.right_if([getattr(one, "gold", one) for one in line.verdicts])


def gold_reward(line: Transcript) -> float:
    """Return the world's own reward of a line, even if it was trained on a judge model's."""
    return sum(getattr(one, "gold", one).reward for one in line.verdicts)


def verdict_reason(line: Transcript) -> str:
    """Return the reason for a line's reward: its last verdict, or why it has none."""
    if line.failed:
        return f"failed ({line.failed.partition(':')[0]})"
    if line.verdicts:
        return line.verdicts[-1].reason
    return "cut" if line.cut else SILENT


def _by_problem(lines: Sequence[Transcript], problems: int, samples: int) -> list[list[Transcript]]:
    """Group the lines of seat 0 by problem and answer; one that never spoke is empty."""
    of_scene = {line.scene: line for line in lines if not line.seat}
    return [
        [of_scene.get(number) or Transcript(number, 0) for number in range(first, first + samples)]
        for first in range(0, problems * samples, samples)
    ]


def _mean_known(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else float("nan")


def resolved_path(path: str | Path) -> str:
    """Return the absolute path, for comparison."""
    return str(Path(path).resolve())

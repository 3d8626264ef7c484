"""Statistics of a language model's answers: length, repetition, entropy, and log-probability
mismatch."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sterling.evaluation.language.sampled_answers import SampledAnswers, gold_reward, verdict_reason
from sterling.evaluation.language.seed_and_problem_intervals import (
    POSITIVE,
    UNIT,
    two_way_estimate,
    two_way_without_missing,
)
from sterling.language.engine.transcript import Transcript
from sterling.language.models.causal_lm import LanguageModel
from sterling.language.models.length_rounding import round_up_length
from sterling.statistics import Estimate
from sterling.training.trained_run import run_return_bounds

NGRAM_LENGTH = 4  # in tokens, as in seq-rep-4 (Welleck 2020, arXiv:1908.04319)
LINES_PER_BATCH = 128  # lines per forward pass


@dataclasses.dataclass(frozen=True)
class LogProbMismatch:
    """How far the log-probabilities recorded while sampling differ from those that the learner
    computes."""

    mean: float  # mean |difference| over tokens, in nats
    largest: float
    effective: float  # (sum w)^2 / (n sum w^2), w = exp(sum of differences) of each answer
    tokens: int


def answer_statistics(spoken: SampledAnswers) -> dict[str, Estimate]:
    """Return statistics of the sampled answers, each with its interval over seeds and problems.

    ``greedy``: share of problems solved by greedy decoding; ``reward``: as in training; ``length``
    in tokens; ``cut``: share of unfinished answers; ``repeated``: share of an answer's 4-grams that
    occurred before in it (shorter answers have none); ``different``: share of a problem's answers
    that no earlier one equals.
    """
    different = np.array([[_distinct_share(own) for own in seed] for seed in spoken.lines])
    within = run_return_bounds(spoken.candidate.settings)
    return {
        "greedy": two_way_estimate(spoken.solved_at_all(greedy=True).astype(np.float64)),
        "reward": two_way_estimate(spoken.mean(lambda line: line.reward), bounds=within),
        "length": two_way_estimate(spoken.mean(lambda line: float(sum(line.own))), bounds=POSITIVE),
        "cut": two_way_estimate(spoken.mean(lambda line: float(line.cut))),
        "repeated": two_way_without_missing(spoken.mean(repeated_share), UNIT),
        "different": two_way_estimate(different),
    }


def repeated_share(line: Transcript) -> float | None:
    """Return the share of a line's generated 4-grams that occurred before in it; None if it is too
    short."""
    said = [token for token, own in zip(line.ids, line.own, strict=True) if own]
    grams = [tuple(said[at : at + NGRAM_LENGTH]) for at in range(len(said) - NGRAM_LENGTH + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else None


def count_reasons(spoken: SampledAnswers) -> dict[str, int]:
    """Count how often each verdict reason was given, the most frequent first."""
    counted = collections.Counter(verdict_reason(line) for line in spoken.every())
    return dict(counted.most_common())


def solve_rate_by_level(spoken: SampledAnswers) -> dict[int, Estimate]:
    """Return the share of right answers at every level."""
    rates, levels = spoken.solved.mean(2), np.array(spoken.levels)
    return {int(level): two_way_estimate(rates[:, levels == level]) for level in np.unique(levels)}


def compare_with_gold(spoken: SampledAnswers) -> dict[str, Any] | None:
    """Compare proxy and gold reward: both means, their gap and their correlation; None without gold
    rewards.

    ``correlation`` is Pearson's over answers; None if either reward is constant.
    """
    lines = [line for line in spoken.every() if line.verdicts]
    if not any(hasattr(one, "gold") for line in lines for one in line.verdicts):
        return None
    parts = {"proxy": lambda line: line.reward, "gold": gold_reward}
    made: dict[str, Any] = {
        name: two_way_estimate(
            spoken.mean(of), bounds=run_return_bounds(spoken.candidate.settings)
        ).to_json()
        for name, of in parts.items()
    }
    gap = spoken.mean(lambda line: line.reward - gold_reward(line))
    both = np.array([[line.reward, gold_reward(line)] for line in lines])
    varies = bool((np.ptp(both, axis=0) > 0.0).all())
    made["gap"] = two_way_estimate(gap, bounds=None).to_json()
    made["correlation"] = float(np.corrcoef(both.T)[0, 1]) if varies else None
    return made


def entropy_and_mismatch(spoken: SampledAnswers) -> tuple[Estimate, LogProbMismatch]:
    """Compute the policy's entropy in nats per token, and the log-probability mismatch, in one pass
    over all lines.

    The entropy is that of the whole distribution at the sampling temperature. With top-k or top-p
    sampling the recorded log-probabilities are those of the truncated distribution, and the
    mismatch includes that difference.
    """
    model, temperature = spoken.candidate.agent.state.model, spoken.candidate.voice().temperature
    entropy = np.full((len(spoken.seeds), len(spoken.levels)), np.nan)
    away: list[Float[np.ndarray, "_"]] = []
    for at, seed in enumerate(spoken.seeds):
        which = spoken.candidate.settings.seeds.index(seed)
        own = jax.tree.map(lambda x, which=which: x[which] if eqx.is_array(x) else x, model)
        lines = [line for each in spoken.lines[at] for line in each]
        read = token_log_probs(own, lines, max(temperature, 1e-6))
        answers = len(lines) // len(spoken.levels)
        for problem in range(len(spoken.levels)):
            said = [h for _, h in read[problem * answers : (problem + 1) * answers] if h.size]
            if said:
                entropy[at, problem] = float(np.mean(np.concatenate(said)))
        away += [
            _recorded_log_probs(line) - log_p for line, (log_p, _) in zip(lines, read, strict=True)
        ]
    return two_way_without_missing(entropy, POSITIVE), log_prob_mismatch(
        [-one for one in away if one.size]
    )


def log_prob_mismatch(away: Sequence[Float[np.ndarray, "_"]]) -> LogProbMismatch:
    """Compute the mismatch from learner minus sampler log-probabilities, one array of tokens per
    answer."""
    if not away:
        return LogProbMismatch(math.nan, math.nan, math.nan, 0)
    size = np.abs(np.concatenate(away))
    total = np.array([one.sum() for one in away])
    weight = np.exp(total - total.max())  # a common factor cancels
    effective = float(weight.sum() ** 2 / (len(weight) * (weight**2).sum()))
    return LogProbMismatch(float(size.mean()), float(size.max()), effective, size.size)


def token_log_probs(
    model: LanguageModel, lines: Sequence[Transcript], temperature: float
) -> list[tuple[Float[np.ndarray, "_"], Float[np.ndarray, "_"]]]:
    """Return the log-probability of each generated token, and the entropy it was drawn at, computed
    as a learner does: whole contexts at once."""
    contexts = [(n, part) for n, line in enumerate(lines) for part in line.contexts]
    parts = list[tuple[Float[np.ndarray, "_"], Float[np.ndarray, "_"]]]()
    room = round_up_length(max((line.longest for line in lines), default=1))
    for first in range(0, len(contexts), LINES_PER_BATCH):
        some = contexts[first : first + LINES_PER_BATCH]
        ids = np.zeros((LINES_PER_BATCH, room), np.int32)
        for row, (number, part) in enumerate(some):
            own = lines[number].ids[part]
            ids[row, : len(own)] = own
        log_p, entropy = (
            np.asarray(x) for x in _log_probs_compiled(model, jnp.asarray(ids), temperature)
        )
        for row, (number, part) in enumerate(some):
            # a token's log-probability is at the position before it
            at = np.flatnonzero(lines[number].own[part]) - 1
            parts.append((log_p[row, at], entropy[row, at]))
    pairs = zip(contexts, parts, strict=True)
    by_line = itertools.groupby(pairs, key=lambda pair: pair[0][0])
    return [_concatenate([part for _, part in own]) for _, own in by_line]


def _concatenate(
    parts: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[Float[np.ndarray, "_"], Float[np.ndarray, "_"]]:
    """Return the values of a line's contexts, one after another."""
    first, second = zip(*parts, strict=True)
    return np.concatenate(first), np.concatenate(second)


@eqx.filter_jit
def _log_probs_compiled(
    model: LanguageModel, ids: Int[Array, "row time"], temperature: float
) -> tuple[Float[Array, "row _"], Float[Array, "row _"]]:
    return model.log_prob(ids, temperature)


def _recorded_log_probs(line: Transcript) -> Float[np.ndarray, "_"]:
    return np.array(line.log_prob, np.float32)[np.array(line.own, bool)]


def _distinct_share(lines: Sequence[Transcript]) -> float:
    """Return the share of answers that equal no earlier one of the same problem."""
    said = {
        tuple(token for token, own in zip(line.ids, line.own, strict=True) if own) for line in lines
    }
    return len(said) / len(lines)

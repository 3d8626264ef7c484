"""What answers are like: how long, how often cut, how repetitive, how certain, how recorded."""

from __future__ import annotations

import collections
import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from sterling.judging.crossed import POSITIVE, UNIT, crossed, without_missing
from sterling.judging.spoken import Spoken, gold, reason
from sterling.language.generate import bucket
from sterling.language.model import LanguageModel
from sterling.language.talk import Line
from sterling.statistics import Estimate
from sterling.training.trained import bounds

GRAM = 4  # tokens; as seq-rep-4 (Welleck 2020, arXiv:1908.04319)
ROWS = 128  # lines that are read at a time


@dataclasses.dataclass(frozen=True)
class Mismatch:
    """Log-probabilities as recorded while sampling, against those that the learner computes."""

    mean: float  # of |difference| over tokens, in nats
    largest: float
    effective: float  # (sum w)^2 / (n sum w^2), w = exp(sum of differences) of each answer
    tokens: int


def described(spoken: Spoken) -> dict[str, Estimate]:
    """Facts about sampled answers, each with its interval over seeds and problems.

    ``length`` in tokens; ``cut``, share that was not finished; ``repeated``, share of an answer's
    4-grams that it said before (answers shorter than that have none); ``different``, share of a
    problem's answers that no earlier one equals; ``reward``, as training counts it.
    """
    different = np.array([[_different(own) for own in seed] for seed in spoken.lines])
    within = bounds(spoken.candidate.settings)
    return {
        "greedy": crossed(spoken.solved_at_all(greedy=True).astype(np.float64)),
        "reward": crossed(spoken.mean(lambda line: line.reward), bounds=within),
        "length": crossed(spoken.mean(lambda line: float(sum(line.own))), bounds=POSITIVE),
        "cut": crossed(spoken.mean(lambda line: float(line.cut))),
        "repeated": without_missing(spoken.mean(repeated), UNIT),
        "different": crossed(different),
    }


def repeated(line: Line) -> float | None:
    """The share of a line's own 4-grams that stand in it before; None if it is too short."""
    said = [token for token, own in zip(line.ids, line.own, strict=True) if own]
    grams = [tuple(said[at : at + GRAM]) for at in range(len(said) - GRAM + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else None


def reasons(spoken: Spoken) -> dict[str, int]:
    """How often each reason was given, the commonest first."""
    counted = collections.Counter(reason(line) for line in spoken.every())
    return dict(counted.most_common())


def by_level(spoken: Spoken) -> dict[int, Estimate]:
    """The share of answers that were right at every level."""
    rates, levels = spoken.solved.mean(2), np.array(spoken.levels)
    return {int(level): crossed(rates[:, levels == level]) for level in np.unique(levels)}


def beside_gold(spoken: Spoken) -> dict[str, Any] | None:
    """Proxy and gold reward where verdicts have both, the gap, and how they go together.

    ``correlation`` is Pearson's over answers; None where either does not vary.
    """
    lines = [line for line in spoken.every() if line.verdicts]
    if not any(hasattr(one, "gold") for line in lines for one in line.verdicts):
        return None
    parts = {"proxy": lambda line: line.reward, "gold": gold}
    made: dict[str, Any] = {
        name: crossed(spoken.mean(of), bounds=bounds(spoken.candidate.settings)).to_json()
        for name, of in parts.items()
    }
    gap = spoken.mean(lambda line: line.reward - gold(line))
    both = np.array([[line.reward, gold(line)] for line in lines])
    varies = bool((np.ptp(both, axis=0) > 0.0).all())
    made["gap"] = crossed(gap, bounds=None).to_json()
    made["correlation"] = float(np.corrcoef(both.T)[0, 1]) if varies else None
    return made


def certainty(spoken: Spoken) -> tuple[Estimate, Mismatch]:
    """The policy's entropy along its answers, in nats per token, and how well their
    log-probabilities were recorded, both from one more reading of all lines.

    Entropy is that of the whole distribution at the temperature of sampling. Where top-k or top-p
    cut it, the record is of what was left, and the mismatch shows the cut as well.
    """
    model, temperature = spoken.candidate.agent.state.model, spoken.candidate.voice().temperature
    entropy = np.full((len(spoken.seeds), len(spoken.levels)), np.nan)
    away: list[Float[np.ndarray, "_"]] = []
    for at, seed in enumerate(spoken.seeds):
        which = spoken.candidate.settings.seeds.index(seed)
        own = jax.tree.map(lambda x, which=which: x[which] if eqx.is_array(x) else x, model)
        lines = [line for each in spoken.lines[at] for line in each]
        read = likelihoods(own, lines, max(temperature, 1e-6))
        answers = len(lines) // len(spoken.levels)
        for problem in range(len(spoken.levels)):
            said = [h for _, h in read[problem * answers : (problem + 1) * answers] if h.size]
            if said:
                entropy[at, problem] = float(np.mean(np.concatenate(said)))
        away += [_recorded(line) - log_p for line, (log_p, _) in zip(lines, read, strict=True)]
    return without_missing(entropy, POSITIVE), mismatch([-one for one in away if one.size])


def mismatch(away: Sequence[Float[np.ndarray, "_"]]) -> Mismatch:
    """From learner minus sampler, token by token, one array for each answer."""
    if not away:
        return Mismatch(math.nan, math.nan, math.nan, 0)
    size = np.abs(np.concatenate(away))
    total = np.array([one.sum() for one in away])
    weight = np.exp(total - total.max())  # any common factor cancels
    effective = float(weight.sum() ** 2 / (len(weight) * (weight**2).sum()))
    return Mismatch(float(size.mean()), float(size.max()), effective, size.size)


def likelihoods(
    model: LanguageModel, lines: Sequence[Line], temperature: float
) -> list[tuple[Float[np.ndarray, "_"], Float[np.ndarray, "_"]]]:
    """log pi of each line's own tokens and the entropy each was chosen from, as a learner reads
    them: whole lines at once."""
    found = []
    room = bucket(max((len(line.ids) for line in lines), default=1))
    for first in range(0, len(lines), ROWS):
        some = lines[first : first + ROWS]
        ids = np.zeros((ROWS, room), np.int32)
        for row, line in enumerate(some):
            ids[row, : len(line.ids)] = line.ids
        log_p, entropy = (np.asarray(x) for x in _read(model, jnp.asarray(ids), temperature))
        for row, line in enumerate(some):
            at = np.flatnonzero(line.own) - 1  # a token is judged where the one before it stands
            found.append((log_p[row, at], entropy[row, at]))
    return found


@eqx.filter_jit
def _read(
    model: LanguageModel, ids: Int[Array, "row time"], temperature: float
) -> tuple[Float[Array, "row _"], Float[Array, "row _"]]:
    return model.log_prob(ids, temperature)


def _recorded(line: Line) -> Float[np.ndarray, "_"]:
    return np.array(line.log_prob, np.float32)[np.array(line.own, bool)]


def _different(lines: Sequence[Line]) -> float:
    """The share of answers that no earlier one of the same problem equals."""
    said = {
        tuple(token for token, own in zip(line.ids, line.own, strict=True) if own) for line in lines
    }
    return len(said) / len(lines)

"""Reward models that were trained, as judges of worlds of text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from sterling.algorithms.language import reward
from sterling.experience.comparisons import of_world
from sterling.language.generate import bucket
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds import scored
from sterling.training import speech
from sterling.training.agent import Agent
from sterling.training.settings import Settings
from sterling.training.trained import load
from sterling.types import Mistake

_score = jax.jit(reward.score)


def announce(world: str) -> None:
    """Load the reward model of ``scored:RUN:WORLD``, so that the world can be found; other names
    need nothing. Raises :class:`Mistake` for runs that are not there or taught something else."""
    if world.startswith(scored.PREFIX):
        path, _ = scored.split(world)
        if path not in scored.known():
            scored.register(path, scorer(path))


def scorer(path: str | Path, seed: int | None = None) -> scored.Scorer:
    """The reward model of a run's folder as a scorer; ``seed``: whose (default: the first's)."""
    run = load(path)
    if run.settings.algorithm != "reward" or run.settings.speech is None:
        made = run.settings.algorithm
        raise Mistake(f"{path} is a run of {made}, no judge; name one that `reward` trained")
    seeds = run.settings.seeds
    if seed is not None and seed not in seeds:
        raise Mistake(f"{path} has seeds {', '.join(map(str, seeds))}, not {seed}")
    index = 0 if seed is None else seeds.index(seed)
    state = jax.tree.map(lambda x: x[index], run.agent.state)
    return of(state, speech.start(run.settings.speech.model).tokenizer)


def preferred(agent: Agent, settings: Settings, pairs: int) -> Float[np.ndarray, "seed pair"]:
    """1 where a seed's judge prefers the world's own solution to a slip of it, of pairs drawn
    apart from training's."""
    place = speech.world(settings, judging=True)
    asked = of_world(place, speech.levels(settings, place), pairs, seed=1)
    tokenizer = speech.start(speech.of(settings).model).tokenizer
    found = []
    for index in range(len(settings.seeds)):
        judge = of(jax.tree.map(lambda x, i=index: x[i], agent.state), tokenizer)
        better = judge([(pair.messages, pair.chosen) for pair in asked])
        worse = judge([(pair.messages, pair.rejected) for pair in asked])
        found.append(np.greater(better, worse))
    return np.array(found, np.float64)


def of(state: reward.State, tokenizer: Tokenizer) -> scored.Scorer:
    """The reward model ``state``, without a seed axis, as a scorer. It reads the conversation and
    the answer up to the token that ends it, as in training. Few shapes are compiled."""

    def score(answers: Sequence[scored.Answered]) -> list[float]:
        lines = [
            [*tokenizer.opening(messages), *tokenizer.encode(text), tokenizer.end]
            for messages, text in answers
        ]
        room, rows = bucket(max(map(len, lines))), 1 << (len(lines) - 1).bit_length()
        ids = np.full((rows, room), tokenizer.pad, np.int32)
        lengths = np.ones(rows, np.int32)
        for row, line in enumerate(lines):
            ids[row, : len(line)], lengths[row] = line, len(line)
        found = _score(state, jnp.asarray(ids), jnp.asarray(lengths))
        return [float(x) for x in np.asarray(found)[: len(lines)]]

    return score

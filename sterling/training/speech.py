"""Runs that teach a language model: the world of text, the model and its tokenizer, the sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array, Int, Key, PyTree

from sterling import algorithms, keys
from sterling.experience import comparisons, recorded
from sterling.experience.conversation import Conversation, Host
from sterling.experience.lines import Rows, record
from sterling.experience.mix import Mix
from sterling.experience.recorded import Dump, Recorded, Remembered
from sterling.experience.stale import Stale
from sterling.experience.texts import Demonstrations
from sterling.language import lora
from sterling.language.model import LanguageModel, forgetful, tiny
from sterling.language.posing import posed
from sterling.language.scene import TextWorld
from sterling.language.talk import Line, Voice, converse, opened
from sterling.language.tokenizer import Tokenizer
from sterling.language.weights import typed
from sterling.language.worlds import find
from sterling.language.worlds.apart import Apart
from sterling.needs import PAIRS, SAID
from sterling.notice import say
from sterling.seeds import over_seeds
from sterling.training import contexts
from sterling.training.agent import Agent, create_agent
from sterling.training.begun import Start, start
from sterling.training.choices import Speech
from sterling.training.loop import Run
from sterling.training.phases import iterations, needs_of
from sterling.training.settings import Settings
from sterling.types import Comparisons, Mistake, Spec


def of(settings: Settings) -> Speech:
    """The settings' part about language."""
    assert settings.speech is not None  # what is here is called for runs that have one
    return settings.speech


def world(settings: Settings, *, judging: bool = False) -> TextWorld:
    """The world of text; where questions are held out only those, if it is for ``judging``, or
    only the others."""
    where, share = settings.environment, of(settings).held_out
    if isinstance(where, str):
        from sterling.training import scorer  # which reads runs of this kind

        scorer.announce(where)
    whole = find(where) if isinstance(where, str) else where()
    return Apart(whole, share, judging=judging) if share else whole


def levels(settings: Settings, place: TextWorld) -> tuple[int, ...]:
    """The difficulties that are asked: "2", "0-3", "1,4", or "" for the easiest."""
    text = of(settings).levels
    if not text:
        return (place.levels[0],)
    try:
        ends = [tuple(map(int, part.split("-", 1))) for part in text.split(",")]
        parts = [range(each[0], each[-1] + 1) for each in ends]
        chosen = tuple(n for part in parts for n in part)
    except ValueError:
        raise Mistake(f"levels {text!r} cannot be read; write 2, 0-3 or 1,4") from None
    if not all(parts) or not set(chosen) <= set(place.levels):
        known = f"{place.levels[0]} to {place.levels[-1]}"
        raise Mistake(f"{place.name} has levels {known}, not {text}")
    return chosen


def voice(settings: Settings, place: TextWorld, tokenizer: Tokenizer) -> Voice:
    """How is spoken in a run: lines are as long as the world's scenes need."""
    needs, limit = needs_of(settings), int(getattr(settings.config, "limit", 32))
    own: dict[str, Any] = {"slots": of(settings).slots, "patience": of(settings).patience}
    if needs.of(SAID):
        own |= {"temperature": needs.temperature, "top_k": needs.top_k, "top_p": needs.top_p}
    context = of(settings).context or settings.context
    if not context:
        whole: Any = place.world if isinstance(place, Apart) else place  # one context for both
        asked, patient = levels(settings, place), of(settings).patience
        context = contexts.of_world(whole, asked, tokenizer, limit, patient)
    return Voice(tokenizer, limit, context, **own)


def settled(settings: Settings) -> Settings:
    """The settings with what the world's scenes need looked at, once for the whole run."""
    if settings.context:
        return settings
    place = world(settings)
    contexts.check_levels(place, levels(settings, place), of(settings).patience)
    how = voice(settings, place, start(of(settings).model).tokenizer)
    return dataclasses.replace(settings, context=how.context)


def problem(settings: Settings, begun: Start) -> Spec:
    """What the learner is told."""
    size = begun.size

    def make(key: Array) -> LanguageModel:
        return prepared(tiny(begun.vocabulary, size, key=key), settings, key)

    tokens = spaces.Discrete(begun.vocabulary)
    count = iterations(settings)
    return Spec(tokens, tokens, iterations=count, model=make if size else None)


def prepared(model: LanguageModel, settings: Settings, key: Key[Array, ""]) -> LanguageModel:
    """The model as it is taught: with adapters, or sparing of memory, where that is asked for."""
    if of(settings).lora:
        model = lora.add(model, of(settings).lora, key=keys.fold(key, "lora"))
    elif not lora.adapted(model):
        model = typed(model, jnp.float32)  # steps of 1e-6 are lost on weights in bfloat16
    return forgetful(model, of(settings).forget)


def beginning(settings: Settings) -> Callable[..., Run]:
    """``begin(seeds, own, warm)``: runs at iteration 0; see ``beginning`` of training/start.py."""
    source_of = _source_maker(settings)

    def begin(seeds: Int[Array, "seed"], own: Any, warm: bool) -> Run:
        made = agents(settings, seeds, own)
        return Run(made, source_of(seeds.size), seeds, jnp.zeros((), jnp.int32))

    return begin


def _source_maker(settings: Settings) -> Callable[[int], Any]:
    """What makes the source of so many seeds, each time anew: an iteration gives memory away."""
    begun, place, needs = start(of(settings).model), world(settings), needs_of(settings)
    how, asked = voice(settings, place, begun.tokenizer), levels(settings, place)
    _check_parts(settings, asked)
    if needs.of(SAID):
        return lambda seeds: _spoken(settings, place, how, asked, seeds)
    if needs.of(PAIRS):
        return _compared(settings, place, begun.tokenizer, needs)
    lines, how = contexts.imitated(of(settings), place, asked, how)
    return lambda seeds: Demonstrations.of(lines, how, needs)


def _check_parts(settings: Settings, asked: tuple[int, ...]) -> None:
    """Raise Mistake where a level has no question to learn from, or none to be judged by; say where
    what this run begins with, or replays, held out fewer."""
    share, base = of(settings).held_out, of(settings).model
    written = of(settings).replay or of(settings).pool
    if not share:
        return
    for judging in (False, True):
        place = world(settings, judging=judging)
        for level in asked:
            place.begin(0, level)
    kept = {base: start(base).held_out}
    if written:
        kept[written] = recorded.held_out(Path(written))
    for where, before in kept.items():
        if before is not None and before < share:
            said = f"{where} held out {before:g} of its questions and this run {share:g}"
            say(f"{said}: some that are kept to judge by may be learned from it")


def _spoken(
    settings: Settings, place: TextWorld, how: Voice, arms: tuple[int, ...], seeds: int
) -> Any:
    """What the agents say, and what was said before, by the settings' shares."""
    asked, needs = of(settings), needs_of(settings)
    none, turns = jnp.zeros((), jnp.int32), getattr(settings.config, "turns", 0)
    if 0 < turns < place.turns:
        said = f"turns={turns} leaves the rewards of later turns out, and {place.name} has "
        raise Mistake(f"{said}{place.turns}; give turns={place.turns}")
    if asked.curriculum != "uniform" and len(arms) == 1:
        raise Mistake("a curriculum chooses between levels, and there is one; give levels=0-3")
    if asked.replay:
        return Recorded.of(Path(asked.replay), iterations(settings))
    if needs.again and not asked.pool:
        raise Mistake("to learn from remembered answers (again) name the dump they are in: pool")
    if needs.again >= needs.prompts:
        raise Mistake(
            f"again={needs.again} leaves none of prompts={needs.prompts} to be asked anew"
        )
    fresh = dataclasses.replace(needs, prompts=needs.prompts - needs.again)
    host = Host(place, how, fresh, arms)
    source: Any = Conversation.create(host, seeds, asked.curriculum)
    if needs.lag:
        blank = record([Rows([], [])] * seeds, how, host.rows)
        source = Stale.create(source, needs.lag, blank)
    if needs.again:
        sizes = {"group": needs.group, "seats": place.seats, "tokens": how.context - 1}
        pool = Remembered.of(Path(asked.pool), needs.again, **sizes)
        source = Mix((source, pool))
    return Dump(source, none, Path(asked.dump), asked.held_out) if asked.dump else source


def _compared(
    settings: Settings, place: TextWorld, tokenizer: Tokenizer, needs: Comparisons
) -> Callable[[int], Any]:
    """What makes pairs of a file, or of the world's solutions and slips of them."""
    if of(settings).texts:
        pairs = contexts.compared(of(settings))
    else:
        pairs = comparisons.of_world(place, levels(settings, place), of(settings).examples)
    context = of(settings).context
    return lambda seeds: comparisons.Compared.create(pairs, needs, tokenizer, context)


def agents(settings: Settings, seeds: Int[Array, "seed"] | None = None, own: Any = None) -> Agent:
    """A learner for every seed, that begins with the model the settings name; ``own`` as in
    ``Agent.create``."""
    begun = start(of(settings).model)
    seeds = jnp.asarray(settings.seeds, jnp.int32) if seeds is None else seeds
    if begun.size:
        return create_agent(settings, problem(settings, begun), seeds, own)
    parts = (begun.among(seeds.tolist()), keys.at(seeds, "model", 0))
    create = _learner(settings)
    return _agent(settings, create(*parts) if own is None else create(*parts, own))


def template(settings: Settings) -> Agent:
    """Agents of the right form, to be filled with what was learned; without their base where the
    run knows its form."""
    shapes, count = start(of(settings).model).shapes, len(settings.seeds)
    if shapes is None:
        return agents(settings)
    many = [jax.ShapeDtypeStruct((count, *x.shape), x.dtype) for x in jax.tree.leaves(shapes)]
    models = jax.tree.unflatten(jax.tree.structure(shapes), many)
    seeds = jnp.asarray(settings.seeds, jnp.int32)
    return _agent(settings, jax.eval_shape(_learner(settings), models, keys.at(seeds, "model", 0)))


def _agent(settings: Settings, states: PyTree) -> Agent:
    algorithm: Any = algorithms.find(settings.algorithm)
    return Agent(states, algorithm, needs_of(settings), settings.inside)


def _learner(settings: Settings) -> Callable[..., PyTree]:
    """What makes the states of learners that begin with trained models, for all seeds."""
    algorithm: Any = algorithms.find(settings.algorithm)

    def begin(model: LanguageModel, key: Key[Array, ""], config: Any = settings.config) -> Any:
        return algorithm.begin(prepared(model, settings, key), config)

    return jax.jit(over_seeds(settings.inside, begin))


def evaluate(
    agent: Agent, settings: Settings, seeds: Int[Array, "seed"], episodes: int
) -> dict[str, np.ndarray]:
    """Scenes drawn apart from training's (see :func:`spoken`), answered as the policy speaks: by
    chance, for a language model's success is that of its samples.

    Returns "return" and "length" (tokens said), ``(seed, episode)``; scenes that failed count 0.
    A reward model is asked which of two answers is better; its return is 1 where it knows.
    """
    if settings.algorithm == "reward":
        from sterling.training.scorer import preferred  # which reads runs of this kind

        right = preferred(agent, settings, episodes)
        return {"return": right, "length": np.ones_like(right)}
    lines = contexts.heard(spoken(agent, settings, seeds, episodes, explore=True))
    found = {name: np.zeros((len(lines), episodes)) for name in ("return", "length")}
    for seed, own in enumerate(lines):
        for line in (line for line in own if not line.seat):
            found["return"][seed, line.scene] = line.reward
            found["length"][seed, line.scene] = sum(line.own)
    return found


def spoken(
    agent: Agent,
    settings: Settings,
    seeds: Int[Array, "seed"],
    episodes: int,
    *,
    explore: bool = False,
    answers: int = 1,
) -> list[list[Line]]:
    """The lines of ``episodes`` scenes for every seed, ``answers`` times each; all seeds get the
    same scenes. They are drawn apart from training's, and are others for certain only where
    questions are held out."""
    begun, place = start(of(settings).model), world(settings, judging=True)
    asked = levels(settings, place)
    random = np.random.default_rng(np.frombuffer(b"evaluate", np.uint8))
    drawn = posed(place, [asked[i % len(asked)] for i in range(episodes)], random)
    how = voice(settings, place, begun.tokenizer)
    scenes = [
        [opened(place, *pair, how.patience) for pair in drawn for _ in range(answers)]
        for _ in settings.seeds
    ]
    return converse(agent, scenes, how, keys.at(seeds, "evaluate", 0), explore=explore)

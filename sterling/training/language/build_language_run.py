"""Build language runs: the text environment, the model and its tokenizer, the sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Int

from sterling.experience.language import answer_pairs, raw_rewards
from sterling.experience.language.conversation_rollout import Conversation, ConversationHost
from sterling.experience.language.delayed_batches import DelayedSource
from sterling.experience.language.imitated_texts import Demonstrations
from sterling.experience.language.raw_rewards import RawRewards
from sterling.experience.language.taught_batches import TaughtSource
from sterling.experience.language.token_rows import GroupedLines, to_record
from sterling.experience.offline import batch_files
from sterling.experience.offline.mixed_sources import Mix
from sterling.experience.offline.recorded_batches import (
    BatchRecorder,
    RecordedBatches,
    SolvedGroups,
)
from sterling.language.scene import TextWorld
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.needs.feed import GENERATED, PAIRS
from sterling.system.terminal_messages import print_notice
from sterling.training.config.settings import Settings
from sterling.training.language import context_length
from sterling.training.language.base_model import create_learners, language_settings, starting_model
from sterling.training.language.judge_models import teacher_of
from sterling.training.language.text_world import (
    asked_levels,
    chat_settings,
    make_voice,
    text_world,
)
from sterling.training.loop import Run
from sterling.training.phases.phase_sequence import learner_needs, total_iterations
from sterling.types import Comparisons, Generations, Mistake


def run_builder(settings: Settings) -> Callable[..., Run]:
    """Return ``begin(seeds, own, warm)``, which creates runs at iteration 0; see ``beginning`` of
    training/assembly/build_run.py."""
    source_of = _source_builder(settings)

    def begin(seeds: Int[Array, "seed"], own: Any, warm: bool) -> Run:
        made = create_learners(settings, seeds, own)
        return Run(made, source_of(seeds.size), seeds, jnp.zeros((), jnp.int32))

    return begin


def _source_builder(settings: Settings) -> Callable[[int], Any]:
    """Return a function that creates the source for a number of seeds, with new arrays each time:
    iterations donate them."""
    speech, needs = language_settings(settings), learner_needs(settings)
    base = starting_model(speech.model)
    if not settings.environment:
        return _texts_source(settings, base.tokenizer)
    place = text_world(settings)
    voice, levels = make_voice(settings, place, base.tokenizer), asked_levels(settings, place)
    _check_held_out(settings, levels)
    if needs.has_feed(GENERATED):
        teacher = teacher_of(settings)

        def source_of(seeds: int) -> Any:
            source = _generation_source(settings, place, voice, levels, seeds)
            return source if teacher is None else TaughtSource(source, teacher)

        return source_of
    if needs.has_feed(PAIRS):
        return _comparison_source(settings, place, base.tokenizer, needs)
    lines, voice = context_length.texts_to_imitate(speech, place, levels, voice)
    return lambda seeds: Demonstrations.from_transcripts(lines, voice, needs, seeds)


def _texts_source(settings: Settings, tokenizer: Tokenizer) -> Callable[[int], Any]:
    """Return a function that creates the source of a run on texts alone, without an environment."""
    speech, needs = language_settings(settings), learner_needs(settings)
    _warn_of_smaller_share(settings)
    if needs.has_feed(PAIRS):
        return _comparison_source(settings, None, tokenizer, needs)
    voice = chat_settings(settings, tokenizer, settings.context)
    lines, voice = context_length.texts_to_imitate(speech, None, (), voice)
    return lambda seeds: Demonstrations.from_transcripts(lines, voice, needs, seeds)


def _check_held_out(settings: Settings, levels: tuple[int, ...]) -> None:
    """Raise Mistake if a level has no question for training or none for evaluation."""
    if not language_settings(settings).held_out:
        return
    for judging in (False, True):
        place = text_world(settings, judging=judging)
        for level in levels:
            place.begin(0, level)
    _warn_of_smaller_share(settings)


def _warn_of_smaller_share(settings: Settings) -> None:
    """Print a notice if the base model, or a replayed folder, held out fewer questions than this
    run."""
    speech = language_settings(settings)
    share, base, written = speech.held_out, speech.model, speech.replay or speech.pool
    held_out_before = {base: starting_model(base).held_out}
    if written:
        held_out_before[written] = batch_files.read_held_out(Path(written))
    for where, before in held_out_before.items():
        if before is not None and before < share:
            said = f"{where} held out {before:g} of its questions and this run {share:g}"
            print_notice(f"{said}: it may have been trained on questions that this run holds out")


def _generation_source(
    settings: Settings, place: TextWorld, voice: ChatSettings, levels: tuple[int, ...], seeds: int
) -> Any:
    """Return the source of the agents' own answers, mixed with replayed ones if asked for."""
    speech, needs = language_settings(settings), learner_needs(settings)
    _check_generation(settings, place, levels, needs)
    if speech.replay:
        count, warmth = total_iterations(settings), float(needs.temperature)
        return RecordedBatches.open_folder(Path(speech.replay), count, voice.rule, warmth)
    fresh = dataclasses.replace(needs, prompts=needs.prompts - needs.again)
    # Batches with answers of a pool that has no named rewards are stored without any.
    known = not needs.again or raw_rewards.names_in_folder(Path(speech.pool)) is not None
    raw = RawRewards(place.turns) if speech.dump and known else None
    host = ConversationHost(place, voice, fresh, levels, raw)
    source: Any = Conversation.create(host, seeds, speech.curriculum)
    if late := needs.lag or needs.ahead:
        blank = to_record([GroupedLines([], [])] * seeds, voice, host.rows, raw)
        source = DelayedSource.create(source, late, blank, ahead=needs.ahead > 0)
    if needs.again:
        sizes = {"group": needs.group, "seats": place.seats, "tokens": voice.context - 1}
        how: dict[str, Any] = {"rule": voice.rule, "raw": raw, "temperature": voice.temperature}
        pool = SolvedGroups.load_folder(Path(speech.pool), needs.again, **sizes, **how)
        source = Mix((source, pool))
    none = jnp.zeros((), jnp.int32)
    return (
        BatchRecorder(source, none, Path(speech.dump), speech.held_out) if speech.dump else source
    )


def _check_generation(
    settings: Settings, place: TextWorld, levels: tuple[int, ...], needs: Generations
) -> None:
    """Raise Mistake for settings of the agents' own answers that do not go together."""
    speech, turns = language_settings(settings), getattr(settings.config, "turns", 0)
    if 0 < turns < place.turns:
        said = f"turns={turns} would ignore the rewards of later turns: {place.name} has "
        raise Mistake(f"{said}{place.turns} turns. Give turns={place.turns}.")
    if speech.curriculum != "uniform" and len(levels) == 1:
        raise Mistake("curriculum needs several levels. Give for instance levels=0-3.")
    if needs.ahead and needs.lag:
        wrong = f"lag={needs.lag} and ahead={needs.ahead} both say how old answers are"
        raise Mistake(f"{wrong}. Give one of them.")
    if speech.replay and needs.ahead:
        raise Mistake("replay samples no answers, so none can be sampled ahead. Leave out ahead.")
    if speech.replay:
        return
    if needs.again and not speech.pool:
        raise Mistake("again needs a folder of batches written by dump. Give pool=FOLDER.")
    if needs.again >= needs.prompts:
        raise Mistake(
            f"again={needs.again} must be below prompts={needs.prompts}, or no new questions remain"
        )


def _comparison_source(
    settings: Settings, place: TextWorld | None, tokenizer: Tokenizer, needs: Comparisons
) -> Callable[[int], Any]:
    """Return a function that creates the source of preference pairs: from a file, or from the
    world's solutions and wrong variants of them."""
    speech = language_settings(settings)
    if speech.texts:
        pairs = context_length.read_preference_pairs(speech, alone=place is None)
    else:
        assert place is not None  # without texts there is an environment
        pairs = answer_pairs.make_pairs(place, asked_levels(settings, place), speech.examples)
    how = (pairs, needs, tokenizer, speech.context)
    return lambda seeds: answer_pairs.PairSource.create(*how, seeds)

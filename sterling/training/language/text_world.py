"""The text environment of a language run: its questions, levels, and how answers are sampled."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sterling.language.adapters.jsonl_tasks import JsonlTasks
from sterling.language.agent_programs.program_probe import ProgramProbe, probe_program
from sterling.language.agent_programs.program_world import ProgramWorld
from sterling.language.models.turn_lengths import length_of_turns
from sterling.language.named_rewards import RewardRule, RightRule
from sterling.language.scene import TextWorld, context_count
from sterling.language.scene_dialogue import ChatSettings
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds import find_world
from sterling.language.worlds.held_out_questions import HeldOutSplit
from sterling.language.worlds.judged_questions import find_judged, is_plain_file
from sterling.language.worlds.single_question import SingleTurn
from sterling.needs.feed import GENERATED
from sterling.statistics.scores.score_bounds import Bounds
from sterling.training.config.settings import Settings
from sterling.training.language import context_length, judge_models
from sterling.training.language.base_model import language_settings
from sterling.training.phases.phase_sequence import learner_needs
from sterling.types import Mistake

UNIT = (0.0, 1.0)
_probes: dict[Any, ProgramProbe] = {}  # of this process, by what decides them


def text_world(settings: Settings, *, judging: bool = False) -> TextWorld:
    """Return the text environment. If questions are held out, it has only these for ``judging``,
    and only the others otherwise. Raise Mistake for a run that learned from texts alone."""
    where, share = settings.environment, language_settings(settings).held_out
    if not where:
        raise Mistake(
            "this run learned from texts alone and has no environment to answer in. Name one when "
            "training (--environment WORLD), or evaluate it beside a run that has one."
        )
    if isinstance(where, str):
        judge_models.register_reward_model(where)
    whole = _whole_world(where, settings)
    worlds: tuple[Any, ...] = (whole, getattr(whole, "world", None))  # a scored world's own one
    for world in worlds:
        if hasattr(world, "right_if"):
            world.right_if = RightRule(language_settings(settings).right_if)
    return HeldOutSplit(whole, share, judging=judging) if share else whole


def _whole_world(where: Any, settings: Settings) -> TextWorld:
    """Return the world that is named, with the user's judge and program, if there are."""
    speech = language_settings(settings)
    find: Callable[[str], TextWorld] = find_world if isinstance(where, str) else lambda _: where()
    name = where if isinstance(where, str) else settings.name
    judge = judge_models.judge_of(speech)
    if not speech.agent:
        return find_judged(judge, name, find) if judge else find(name)
    if judge:
        questions = find_judged(judge, name, find, ())
    elif is_plain_file(name):
        questions = SingleTurn(JsonlTasks(Path(name), fields=()))
    else:
        questions = find(name)
    if not isinstance(questions, SingleTurn):
        raise Mistake(
            f"{name} plays scenes of its own. A program (agent) needs tasks, such as FILE.jsonl."
        )
    return ProgramWorld(
        questions.family,
        speech.agent,
        seconds=speech.agent_seconds,
        turns=speech.agent_turns,
        tokens=speech.agent_tokens,
        contexts=speech.agent_contexts,
        top_logprobs=speech.agent_top_logprobs,
        at_once=speech.agents_at_once,
        failed_reward=speech.failed_reward,
    )


def program_of(settings: Settings, place: Any) -> ProgramProbe | None:
    """Return what the agent program of a run does on the first task of its world; None for a run
    without one."""
    speech = language_settings(settings)
    if not speech.agent:
        return None
    limits = (
        *(speech.agent_turns, speech.agent_tokens, speech.agent_contexts, speech.agent_seconds),
        speech.agent_top_logprobs,
    )
    judge = (speech.judge, speech.rubric, speech.judge_limit)
    key = (speech.agent, str(settings.environment), judge, limits)
    if key not in _probes:
        _probes[key] = probe_program(getattr(place, "world", place))  # of a split world: the whole
    return _probes[key]


def asked_levels(settings: Settings, place: TextWorld) -> tuple[int, ...]:
    """Return the levels of difficulty of the setting "2", "0-3", "1,4", or "" for the easiest."""
    text = language_settings(settings).levels
    if not text:
        return (place.levels[0],)
    try:
        ends = [tuple(map(int, part.split("-", 1))) for part in text.split(",")]
        parts = [range(each[0], each[-1] + 1) for each in ends]
        chosen = tuple(n for part in parts for n in part)
    except ValueError:
        raise Mistake(f"Cannot parse levels={text!r}. Write 2, 0-3 or 1,4.") from None
    if not all(parts) or not set(chosen) <= set(place.levels):
        known = f"{place.levels[0]} to {place.levels[-1]}"
        raise Mistake(f"levels={text}: {place.name} has levels {known}.")
    return chosen


def text_reward_bounds(place: TextWorld) -> Bounds | None:
    """Return the bounds of a scene's reward; None if unknown. A turn of Sterling's own worlds and
    families gives 0 to 1; a user's say ``within = (low, high)`` if their rewards have bounds."""
    world: Any = place.world if isinstance(place, HeldOutSplit) else place
    family = getattr(world, "family", world)
    parts = list(getattr(family, "members", {"": family}).values())
    declared = [getattr(each, "within", UNIT if _is_built_in(each) else None) for each in parts]
    known = [each for each in declared if each is not None]
    if len(known) < len(declared):
        return None
    low, high = min(each[0] for each in known), max(each[1] for each in known)
    return min(0.0, low * world.turns), max(0.0, high * world.turns)


def _is_built_in(part: Any) -> bool:
    return type(part).__module__.partition(".")[0] == __name__.partition(".")[0]


def make_voice(settings: Settings, place: TextWorld, tokenizer: Tokenizer) -> ChatSettings:
    """Build a run's voice: tokenizer, context length and sampling settings. The context length is
    the user's, or what the world's scenes need."""
    limit, speech = answer_limit(settings), language_settings(settings)
    context = speech.context or settings.context
    if not context and (probe := program_of(settings, place)) is not None:
        seen = (probe.openings, probe.replies, place.turns)
        context = length_of_turns(*seen, tokenizer, limit)
    if not context:
        whole: Any = (
            place.world if isinstance(place, HeldOutSplit) else place
        )  # one context for both
        levels = asked_levels(settings, place)
        context = context_length.world_context_length(
            whole, levels, tokenizer, limit, speech.scene_seconds
        )
    voice = chat_settings(settings, tokenizer, context)
    return dataclasses.replace(voice, contexts=context_count(place))


def answer_limit(settings: Settings) -> int:
    """Return the most tokens of an answer."""
    return int(getattr(settings.config, "limit", 32))


def chat_settings(settings: Settings, tokenizer: Tokenizer, context: int) -> ChatSettings:
    """Return how a run's answers are sampled, within ``context`` tokens."""
    needs, speech = learner_needs(settings), language_settings(settings)
    sampling: dict[str, Any] = {"slots": speech.slots, "patience": speech.scene_seconds}
    sampling["likeliest"] = speech.agent_top_logprobs
    sampling["rule"] = RewardRule(speech.rewards, each=speech.rewards_each)
    sampling["right_if"] = RightRule(speech.right_if)
    if needs.has_feed(GENERATED):
        sampling |= {"temperature": needs.temperature, "top_k": needs.top_k, "top_p": needs.top_p}
    return ChatSettings(tokenizer, answer_limit(settings), context, **sampling)

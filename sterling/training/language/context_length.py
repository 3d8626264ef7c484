"""Find the context length of a language run, from the scenes of its world or from its texts."""

from __future__ import annotations

import collections
import dataclasses
import functools
import re
import time
from collections.abc import Callable
from typing import Any

from sterling.experience.language.answer_pairs import PreferencePair
from sterling.experience.language.answer_pairs import read_pairs as pairs_of_file
from sterling.experience.language.imitated_texts import HELD_OUT_REASON, read_demonstrations
from sterling.experience.language.imitated_texts import make_demonstrations as solved
from sterling.language.engine.transcript import Transcript
from sterling.language.models.turn_lengths import length_of_turns, round_up_context
from sterling.language.scene import Message, Scene, begin_scene, check_seat, context_count
from sterling.language.scene_dialogue import UNLIMITED_CONTEXT, ChatSettings
from sterling.language.time_limits import time_limit
from sterling.language.tokenizer import Tokenizer
from sterling.language.worlds.held_out_questions import kept_out_rule
from sterling.lookup.user_imports import describe_error
from sterling.system.away_errors import Away
from sterling.system.shown_values import short_text, shown_value
from sterling.system.terminal_messages import print_notice
from sterling.training.config.run_options import LanguageSettings
from sterling.types import Mistake

PROBED_SCENES = (
    32  # scenes of each level whose opening is measured, and of the hardest that are played
)
OPENING_WORDS = 4  # words of the opening that serve as answers in a played scene
BEGIN_ATTEMPTS = 3  # scenes of a level of which one has to begin
SLOW_TOOLS = ("python",)  # tools whose answers depend on the machine's load: they are not called


def check_scenes_begin(place: Any, which: tuple[int, ...], seconds: float) -> None:
    """Raise Mistake if no scene of a level begins: a run would consist of failures."""
    for level in which:
        last = time.monotonic() + 2.0 * seconds  # do not wait for every scene that hangs
        for seed in range(BEGIN_ATTEMPTS):
            fault = _begin_error(place, seed, level, seconds)
            if fault is None:
                break
            if seed + 1 == BEGIN_ATTEMPTS or time.monotonic() > last:
                _raise_begin_error(place, level, fault)


def _begin_error(place: Any, seed: int, level: int, seconds: float) -> Exception | None:
    """Return the exception that a scene raises as it begins; None if it begins."""
    try:
        with time_limit(seconds):
            place.begin(seed, level)
    except Exception as error:  # a user's world may raise anything
        return error
    return None


def _raise_begin_error(place: Any, level: int, fault: Exception) -> None:
    if isinstance(fault, Mistake):
        raise fault
    said = f"{type(fault).__name__}: {short_text(str(fault))}"
    raise Mistake(
        f"{place.name}: no scene of level {level} begins ({said}). Fix the environment."
    ) from fault


@functools.lru_cache(maxsize=8)
def world_context_length(
    place: Any, which: tuple[int, ...], tokenizer: Tokenizer, limit: int, seconds: float
) -> int:
    """Return the context length that a world's scenes need: the longest opening, and every turn
    (of scenes that begin contexts anew, as many as one context was seen to have).

    The longest reply between turns is found by playing scenes with poor answers; it is taken as at
    least twice as long as an answer.
    """
    openings, replies, turns = set(), set(), place.turns
    for level in which:
        for seed in range(PROBED_SCENES):
            scene = begin_scene(place, seed, level, seconds)
            if not isinstance(scene, str) and scene.turn is not None:
                check_seat(place, scene.turn.seat)
                openings.add(scene.turn.messages)
    if place.turns > 1:
        inner = getattr(place, "world", place)  # without the judge, who adds no text to the scene
        played = _play_scenes(inner, max(which), tokenizer, limit, seconds)
        openings |= played.openings
        replies = played.replies
        if context_count(inner) > 1:
            turns = min(turns, max(played.turns, 1))
    return length_of_turns(openings, replies, turns, tokenizer, limit)


@dataclasses.dataclass
class _PlayedScenes:
    """Messages that begin a context, and later ones; most turns of one; why ``solve`` failed."""

    openings: set[tuple[Message, ...]] = dataclasses.field(default_factory=set)
    replies: set[tuple[Message, ...]] = dataclasses.field(default_factory=set)
    turns: int = 0
    unsolved: str = ""


def _play_scenes(
    place: Any, level: int, tokenizer: Tokenizer, limit: int, seconds: float
) -> _PlayedScenes:
    """Play scenes with poor answers, and every third with the world's solution; return the
    messages."""
    played = _PlayedScenes()
    for seed in range(PROBED_SCENES):
        scene = begin_scene(place, seed, level, seconds)
        if isinstance(scene, str) or scene.turn is None:
            continue
        answer = _scripted_answers(place, scene, seed, tokenizer, limit)
        try:
            _play_scene(place, scene, answer, seconds, played)
        except (TimeoutError, Away):
            break  # other scenes of this world may hang too
    if played.unsolved:
        print_notice(
            f"{place.name}.solve fails ({played.unsolved}): the context is measured without it"
        )
    return played


def _scripted_answers(
    place: Any, scene: Scene, seed: int, tokenizer: Tokenizer, limit: int
) -> Callable[[int], str]:
    """Return a function that gives the answer of each turn, of at most ``limit`` tokens."""
    assert scene.turn is not None  # it has just begun
    poor = _poor_answers(place, scene.turn.messages[-1].content, tokenizer, limit)
    good = seed % 3 == 0 and hasattr(place, "solve")

    def answer(turn: int) -> str:
        text = _world_solution(place, scene) if good else poor[(seed + turn) % len(poor)]
        return tokenizer.decode(tokenizer.encode(text)[:limit])

    return answer


class _SolveFailed(Exception):
    """A world's ``solve`` failed; the text says how, and is empty if it need not be reported."""


def _world_solution(place: Any, scene: Scene) -> str:
    """Return the world's own solution; raise _Unsolved if there is none."""
    try:
        text = place.solve(scene)
    except TimeoutError:
        raise
    except Mistake as error:  # some tasks have no solution; imitating them raises this Mistake
        raise _SolveFailed("") from error
    except Exception as error:
        raise _SolveFailed(f"it raises {describe_error(error)}") from error
    if not isinstance(text, str):
        raise _SolveFailed(f"it returns {shown_value(text)} in place of text")
    return text


def _play_scene(
    place: Any,
    scene: Scene,
    answer: Callable[[int], str],
    seconds: float,
    played: _PlayedScenes,
) -> None:
    """Answer until the scene is over or fails, and add its messages to ``played``. Raise Mistake if
    it asks a seat that its world does not have."""
    answered = collections.Counter[int]()  # answers of each seat's present context
    for turn in range(place.turns * place.seats):
        if scene.turn is None:
            break
        check_seat(place, scene.turn.seat)
        if getattr(scene.turn, "fresh_context", False):
            answered[scene.turn.seat] = 0
        kept = played.replies if answered[scene.turn.seat] else played.openings
        kept.add(scene.turn.messages)
        answered[scene.turn.seat] += 1
        played.turns = max(played.turns, answered[scene.turn.seat])
        with time_limit(seconds):
            try:
                said = answer(turn)
            except _SolveFailed as error:
                played.unsolved = played.unsolved or str(error)
                break
            if not _accepts_answer(scene, said):
                break


def _accepts_answer(scene: Scene, said: str) -> bool:
    """Whether a scene accepts an answer. The run itself counts and reports scenes that fail."""
    try:
        scene.say(said)
    except (TimeoutError, Away):
        raise
    except Exception:  # a user's world may raise anything
        return False
    return True


def _poor_answers(place: Any, opening: str, tokenizer: Tokenizer, limit: int) -> list[str]:
    """Return answers of an untrained model: nothing, nonsense, words of the question, and wrong
    tool calls. They may be longer than ``limit``."""
    poor = ["", "x" * limit, "1" * limit, *re.findall(r"\w+", opening)[:OPENING_WORDS]]
    tools = getattr(place, "tools", {})
    for name in (*tools, "tool_call") if tools else ():
        begin, end = f"<{name}>", f"</{name}>"
        poor.append(begin + opening)
        if name not in SLOW_TOOLS:
            room = max(limit - len(tokenizer.encode(begin + end)), 0)
            inside = tokenizer.decode(tokenizer.encode(opening)[:room])
            poor += [(begin + end) * limit, begin + inside + end]
    return [*poor, '<tool_call>{"name":"x"}</tool_call>'] if tools else poor


def texts_to_imitate(
    speech: LanguageSettings,
    place: Any,
    levels: tuple[int, ...],
    voice: ChatSettings,
    *,
    judging: bool = False,
) -> tuple[list[Transcript], ChatSettings]:
    """Return the texts to imitate, and the voice with a context length that they fit into; for
    ``judging`` the texts of a file that are held out, in place of all others.

    The context length is that of the longest text, with a world's own solutions at least the
    voice's. If the user sets one, longer texts are marked as cut; a notice counts those left out.
    """
    wide = dataclasses.replace(voice, context=UNLIMITED_CONTEXT)
    if speech.texts:
        rule, alone = kept_out_rule(speech.held_out, judging=judging), place is None
        lines = read_demonstrations(speech.texts, wide, rule, plain_kept_out=alone)
        if alone:  # the first lines say how many are held out
            lines = [line for line in lines if line.failed != HELD_OUT_REASON]
    else:
        lines = solved(place, levels, wide, speech.examples)
    least = 0 if speech.texts else voice.context
    longest = max((line.longest for line in lines if not line.failed), default=0)
    context = speech.context or round_up_context(max(least, longest))
    for line in lines:
        line.cut |= line.longest > context
    _report_left_out(lines, context)
    return lines, dataclasses.replace(voice, context=context)


def warn_of_failed_scenes(seeds: list[list[Transcript]]) -> list[list[Transcript]]:
    """Return every seed's lines; print how many of them failed, and how many verdicts were late."""
    if late := sum(line.timeouts for own in seeds for line in own):
        print_notice(f"{late} verdicts ran past their time limit: each is worth 0")
    failed = [line.failed for own in seeds for line in own if line.failed]
    if failed:
        count = sum(map(len, seeds))
        print_notice(
            f"{len(failed)} of {count} answers count 0: their scenes failed, for example "
            f"{failed[0]}"
        )
    return seeds


def read_preference_pairs(
    speech: LanguageSettings, *, judging: bool = False, alone: bool = False
) -> list[PreferencePair]:
    """Return the preference pairs of the file ``texts``, without pairs of held-out questions, or
    for ``judging`` only these. ``alone``: the run's first lines have said how many they are."""
    pairs, kept_out = pairs_of_file(speech.texts), kept_out_rule(speech.held_out, judging=judging)
    kept = [pair for pair in pairs if not (kept_out and kept_out(pair.messages))]
    if not kept:
        raise Mistake(f"every question of {speech.texts} is held out. Use a smaller held_out.")
    if len(kept) < len(pairs) and not alone:
        print_notice(
            f"{len(pairs) - len(kept)} of {len(pairs)} pairs are left out: {HELD_OUT_REASON}"
        )
    return kept


def _report_left_out(lines: list[Transcript], context: int) -> None:
    """Print how many texts are left out, and why; if all are, a Mistake follows instead."""
    failed = [line.failed for line in lines if line.failed]
    cut = sum(line.cut and not line.failed for line in lines)
    if len(failed) + cut == len(lines):
        return
    said = f"of {len(lines)} texts to imitate are left out"
    if cut:
        print_notice(
            f"{cut} {said}: they have more than {context} tokens; a larger --context keeps them"
        )
    if failed:
        print_notice(f"{len(failed)} {said}: they failed, for example {failed[0]}")
